//! ELECTRA (Clark et al. 2020, <https://arxiv.org/abs/2003.10555>): BERT whose embeddings may be narrower.

use super::encoder::*;
use super::heads::{self, HeadChoice, transform};
use super::names::{Names, linear};
use crate::config::{Config, MAX_WIDTH};
use crate::*;

pub(super) fn architecture(
    config: &Config,
    choice: HeadChoice,
    has: &dyn Fn(&str) -> bool,
) -> Result<Architecture, Error> {
    let names = Names::new(has, "electra.", WORD);
    let dims = Dims::read(config, (256, 4, 1024, 12, 30522, "gelu"))?;
    let width = config.size("embedding_size", 128, MAX_WIDTH)?;
    let h = dims.hidden;
    let head = match choice {
        HeadChoice::Hidden => heads::hidden(),
        HeadChoice::Sequence => two_layer_classifier(config, h, Activation::Gelu)?,
        HeadChoice::Token => heads::token(config, "classifier", h)?,
        HeadChoice::Answer => heads::answer("qa_outputs", h),
        HeadChoice::MaskedLm => {
            let norm = names.norm("generator_predictions.LayerNorm", width, dims.eps);
            let before = transform(linear("generator_predictions.dense", h, width), Activation::Gelu, norm);
            masked_lm(config, &names, before, "generator_lm_head.weight", &["generator_lm_head.bias"])?
        }
        _ => return Err(heads::none("ELECTRA", choice)),
    };
    let mut embeddings = embeddings(config, &names, &dims, width, 0)?;
    embeddings.projection = (width != h).then(|| linear(&names.base("embeddings_project"), width, h));
    Ok(encoder(Family::Electra, h, embeddings, layers(&names, &dims), head))
}
