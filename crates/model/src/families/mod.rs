//! From a published `config.json` to an [`Architecture`]: one short file per family, all of it names and numbers.

mod bert;
mod heads;
mod names;

use crate::config::Config;
use crate::weights::one_line;
use crate::{Architecture, Error};
pub use heads::HeadChoice;

impl Architecture {
    /// Normalises a `config.json`. `has` tells whether the weights hold a tensor of that name: published files of
    /// one family differ in prefixes and old spellings, and leave tied tensors out. Shapes are not looked at here.
    pub fn from_config(
        text: &[u8],
        head: Option<HeadChoice>,
        has: &dyn Fn(&str) -> bool,
    ) -> Result<Architecture, Error> {
        let config = Config::parse("config.json", text)?;
        let model_type = config.text("model_type", "")?;
        let build = match model_type {
            "bert" => bert::architecture,
            _ => {
                return Err(Error::new(format!(
                    "config.json: \"model_type\" is \"{}\"; supported are bert, distilbert, roberta, xlm-roberta, camembert, albert, \
                     mpnet, electra, mobilebert, longformer, xlnet and gpt2",
                    one_line(model_type)
                )));
            }
        };
        build(&config, head, has)
    }
}
