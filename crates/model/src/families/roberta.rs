//! RoBERTa (Liu et al. 2019, <https://arxiv.org/abs/1907.11692>), and XLM-RoBERTa and CamemBERT, which differ in
//! vocabulary only.

use super::encoder::*;
use super::heads::{self, HeadChoice};
use super::names::Names;
use crate::config::Config;
use crate::*;

pub(super) fn architecture(
    config: &Config,
    choice: HeadChoice,
    has: &dyn Fn(&str) -> bool,
) -> Result<Architecture, Error> {
    let names = Names::new(has, "roberta.", WORD);
    let dims = Dims::read(config, (768, 12, 3072, 12, 50265, "gelu"))?;
    let h = dims.hidden;
    let head = match choice {
        HeadChoice::Hidden => heads::hidden(),
        HeadChoice::Sequence => two_layer_classifier(config, h, Activation::Tanh)?,
        HeadChoice::Token => heads::token(config, "classifier", h)?,
        HeadChoice::Answer => heads::answer("qa_outputs", h),
        HeadChoice::MaskedLm => lm_head(config, &names, &dims)?,
        _ => return Err(heads::none("RoBERTa", choice)),
    };
    let embeddings = embeddings(config, &names, &dims, h, after_padding(config)?)?;
    Ok(encoder(Family::Roberta, h, embeddings, layers(&names, &dims), head))
}
