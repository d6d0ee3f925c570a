//! BERT (Devlin et al. 2018, <https://arxiv.org/abs/1810.04805>).

use super::encoder::*;
use super::heads::{self, HeadChoice, activated, transform};
use super::names::{Names, linear};
use crate::config::Config;
use crate::*;

pub(super) fn architecture(
    config: &Config,
    choice: HeadChoice,
    has: &dyn Fn(&str) -> bool,
) -> Result<Architecture, Error> {
    let names = Names::new(has, "bert.", WORD);
    let dims = Dims::read(config, BASE)?;
    let h = dims.hidden;
    let head = match choice {
        HeadChoice::Hidden => heads::hidden(),
        HeadChoice::Sequence => {
            let pooler = activated(linear(&names.base("pooler.dense"), h, h), Activation::Tanh);
            heads::sequence(config, HeadRows::First, vec![pooler], "classifier", h)?
        }
        HeadChoice::Token => heads::token(config, "classifier", h)?,
        HeadChoice::Answer => heads::answer("qa_outputs", h),
        HeadChoice::MaskedLm => {
            let at = "cls.predictions.transform";
            let norm = names.norm(&format!("{at}.LayerNorm"), h, dims.eps);
            let before = transform(linear(&format!("{at}.dense"), h, h), dims.activation, norm);
            let biases = ["cls.predictions.decoder.bias", "cls.predictions.bias"];
            masked_lm(config, &names, before, "cls.predictions.decoder.weight", &biases)?
        }
        _ => return Err(heads::none("BERT", choice)),
    };
    let embeddings = embeddings(config, &names, &dims, h, 0)?;
    Ok(encoder(Family::Bert, h, embeddings, layers(&names, &dims), head))
}
