//! ALBERT (Lan et al. 2019, <https://arxiv.org/abs/1909.11942>): narrow embeddings, layers that share their weights.

use super::encoder::*;
use super::heads::{self, HeadChoice, activated, transform};
use super::names::{Names, linear};
use crate::config::{Config, MAX_LAYERS, MAX_WIDTH};
use crate::*;

const ATTENTION: AttentionNames = AttentionNames {
    query: "attention.query",
    key: "attention.key",
    value: "attention.value",
    output: "attention.dense",
    norm: "attention.LayerNorm",
};
const FFN: [&str; 3] = ["ffn", "ffn_output", "full_layer_layer_norm"];

pub(super) fn architecture(
    config: &Config,
    choice: HeadChoice,
    has: &dyn Fn(&str) -> bool,
) -> Result<Architecture, Error> {
    let names = Names::new(has, "albert.", WORD);
    let dims = Dims::read(config, (4096, 64, 16384, 12, 30000, "gelu_new"))?;
    let width = config.size("embedding_size", 128, MAX_WIDTH)?;
    let h = dims.hidden;
    let head = match choice {
        HeadChoice::Hidden => heads::hidden(),
        HeadChoice::Sequence => {
            let pooler = activated(linear(&names.base("pooler"), h, h), Activation::Tanh);
            heads::sequence(config, HeadRows::First, vec![pooler], "classifier", h)?
        }
        HeadChoice::Token => heads::token(config, "classifier", h)?,
        HeadChoice::Answer => heads::answer("qa_outputs", h),
        HeadChoice::MaskedLm => {
            let norm = names.norm("predictions.LayerNorm", width, dims.eps);
            let before = transform(linear("predictions.dense", h, width), dims.activation, norm);
            masked_lm(
                config,
                &names,
                before,
                "predictions.decoder.weight",
                &["predictions.decoder.bias", "predictions.bias"],
            )?
        }
        _ => return Err(heads::none("ALBERT", choice)),
    };
    let mut embeddings = embeddings(config, &names, &dims, width, 0)?;
    embeddings.projection = Some(linear(&names.base("encoder.embedding_hidden_mapping_in"), width, h));
    Ok(encoder(Family::Albert, h, embeddings, layers(config, &names, &dims)?, head))
}

/// Every hidden layer runs all inner layers of its group; several hidden layers share a group.
fn layers(config: &Config, names: &Names, dims: &Dims) -> Result<Vec<Layer>, Error> {
    let groups = config.size("num_hidden_groups", 1, MAX_LAYERS)?;
    let inner = config.size("inner_group_num", 1, MAX_LAYERS)?;
    if dims.layers * inner > MAX_LAYERS {
        let why = format!("with {} hidden layers that makes more than {MAX_LAYERS} layers", dims.layers);
        return Err(config.refuse("inner_group_num", &why));
    }
    let mut layers = Vec::with_capacity(dims.layers * inner);
    for i in 0..dims.layers {
        // As the reference computes it, in floating point.
        let group = (i as f64 / (dims.layers as f64 / groups as f64)) as usize;
        for j in 0..inner {
            let at = names.base(&format!("encoder.albert_layer_groups.{group}.albert_layers.{j}"));
            layers.push(layer(names, dims, &at, &ATTENTION, FFN));
        }
    }
    Ok(layers)
}
