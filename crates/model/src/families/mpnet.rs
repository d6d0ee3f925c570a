//! MPNet (Song et al. 2020, <https://arxiv.org/abs/2004.09297>): BERT without token types, with one bias per head and
//! bucketed distance that all layers share.

use super::encoder::*;
use super::heads::{self, HeadChoice};
use super::names::Names;
use crate::config::{Config, MAX_ROWS};
use crate::*;

const ATTENTION: AttentionNames = AttentionNames {
    query: "attention.attn.q",
    key: "attention.attn.k",
    value: "attention.attn.v",
    output: "attention.attn.o",
    norm: "attention.LayerNorm",
};
/// The reference computes buckets with these two whatever the configuration says.
const BUCKETS: usize = 32;
const MAX_DISTANCE: usize = 128;
/// The padding index is fixed to 1, so positions begin at 2.
const OFFSET: usize = 2;

pub(super) fn architecture(
    config: &Config,
    choice: HeadChoice,
    has: &dyn Fn(&str) -> bool,
) -> Result<Architecture, Error> {
    let names = Names::new(has, "mpnet.", WORD);
    let dims = Dims::read(config, (768, 12, 3072, 12, 30527, "gelu"))?;
    let h = dims.hidden;
    if config.size("relative_attention_num_buckets", BUCKETS, MAX_ROWS)? != BUCKETS {
        return Err(config.refuse("relative_attention_num_buckets", "only 32 is supported, as in the reference"));
    }
    let head = match choice {
        HeadChoice::Hidden => heads::hidden(),
        HeadChoice::Sequence => two_layer_classifier(config, h, Activation::Tanh)?,
        HeadChoice::Token => heads::token(config, "classifier", h)?,
        HeadChoice::Answer => heads::answer("qa_outputs", h),
        HeadChoice::MaskedLm => lm_head(config, &names, &dims)?,
        _ => return Err(heads::none("MPNet", choice)),
    };
    let mut embeddings = embeddings(config, &names, &dims, h, OFFSET)?;
    embeddings.token_types = None;
    let layers = (0..dims.layers)
        .map(|i| {
            let mut layer = layer(&names, &dims, &names.base(&format!("encoder.layer.{i}")), &ATTENTION, BERT_FFN);
            layer.attention.position = AttentionPosition::Buckets {
                table: names.base("encoder.relative_attention_bias.weight"),
                columns: dims.heads,
                buckets: BUCKETS,
                max_distance: MAX_DISTANCE,
            };
            layer
        })
        .collect();
    Ok(encoder(Family::MpNet, h, embeddings, layers, head))
}
