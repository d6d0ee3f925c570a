//! From a published `config.json` to an [`Architecture`]: one short file per family, all of it names and numbers.

mod albert;
mod bert;
mod distilbert;
mod electra;
mod encoder;
mod gpt2;
mod heads;
mod longformer;
mod mobilebert;
mod mpnet;
mod names;
mod roberta;
mod xlnet;

use crate::config::Config;
use crate::weights::one_line;
use crate::{Architecture, Error, Head, HeadKind, HeadRows};
pub use heads::HeadChoice;
pub(crate) use heads::{activated, head, plain};
pub(crate) use names::{bias, tensor};

type Build = fn(&Config, HeadChoice, &dyn Fn(&str) -> bool) -> Result<Architecture, Error>;

/// `model_type`, how Python's class names begin, and who builds it.
const FAMILIES: [(&str, &str, Build); 12] = [
    ("bert", "Bert", bert::architecture),
    ("distilbert", "DistilBert", distilbert::architecture),
    ("roberta", "Roberta", roberta::architecture),
    ("xlm-roberta", "XLMRoberta", roberta::architecture),
    ("camembert", "Camembert", roberta::architecture),
    ("albert", "Albert", albert::architecture),
    ("mpnet", "MPNet", mpnet::architecture),
    ("electra", "Electra", electra::architecture),
    ("mobilebert", "MobileBert", mobilebert::architecture),
    ("longformer", "Longformer", longformer::architecture),
    ("xlnet", "XLNet", xlnet::architecture),
    ("gpt2", "GPT2", gpt2::architecture),
];

impl Architecture {
    /// Normalises a `config.json`. `has` tells whether the weights hold a tensor of that name: published files of
    /// one family differ in prefixes and old spellings, and leave tied tensors out. Shapes are not looked at here.
    pub fn from_config(
        text: &[u8],
        choice: Option<HeadChoice>,
        has: &dyn Fn(&str) -> bool,
    ) -> Result<Architecture, Error> {
        let config = Config::parse("config.json", text)?;
        let model_type = config.text("model_type", "")?;
        let Some((_, class, build)) = FAMILIES.iter().find(|f| f.0 == model_type) else {
            let known: Vec<&str> = FAMILIES.iter().map(|f| f.0).collect();
            return Err(Error::new(format!(
                "config.json: \"model_type\" is \"{}\"; supported are {}",
                one_line(model_type),
                known.join(", ")
            )));
        };
        let choice = choice.map_or_else(|| HeadChoice::from_config(&config, class), Ok)?;
        if choice != HeadChoice::Embed {
            return build(&config, choice, has);
        }
        // Without files that say more: the mean of the hidden states, scaled to unit length.
        let bare = build(&config, HeadChoice::Hidden, has)?;
        Ok(Architecture { head: embed(HeadRows::Mean, true), ..bare })
    }
}

/// One vector per sequence.
pub(crate) fn embed(rows: HeadRows, normalise: bool) -> Head {
    head(rows, vec![], HeadKind::Embed { normalise })
}
