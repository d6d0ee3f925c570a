//! DistilBERT (Sanh et al. 2019, <https://arxiv.org/abs/1910.01108>): BERT without token types and pooler.

use super::encoder::*;
use super::heads::{self, HeadChoice, activated, transform};
use super::names::{Names, linear};
use crate::config::{Config, MAX_LAYERS, MAX_ROWS, MAX_WIDTH};
use crate::*;

/// Fixed in the reference, whatever the configuration says.
const EPS: f32 = 1e-12;

const ATTENTION: AttentionNames = AttentionNames {
    query: "attention.q_lin",
    key: "attention.k_lin",
    value: "attention.v_lin",
    output: "attention.out_lin",
    norm: "sa_layer_norm",
};
const FFN: [&str; 3] = ["ffn.lin1", "ffn.lin2", "output_layer_norm"];

pub(super) fn architecture(
    config: &Config,
    choice: HeadChoice,
    has: &dyn Fn(&str) -> bool,
) -> Result<Architecture, Error> {
    let names = Names::new(has, "distilbert.", WORD);
    let h = config.size(config.pick(["dim", "hidden_size"]), 768, MAX_WIDTH)?;
    let dims = Dims {
        hidden: h,
        heads: config.heads(config.pick(["n_heads", "num_attention_heads"]), 12, h)?,
        inner: config.size("hidden_dim", 3072, MAX_WIDTH)?,
        layers: config.count(config.pick(["n_layers", "num_hidden_layers"]), 6, MAX_LAYERS)?,
        vocabulary: config.size("vocab_size", 30522, MAX_ROWS)?,
        activation: config.activation("activation", "gelu")?,
        eps: EPS,
    };
    let head = match choice {
        HeadChoice::Hidden => heads::hidden(),
        HeadChoice::Sequence => {
            let before = activated(linear("pre_classifier", h, h), Activation::Relu);
            heads::sequence(config, HeadRows::First, vec![before], "classifier", h)?
        }
        HeadChoice::Token => heads::token(config, "classifier", h)?,
        HeadChoice::Answer => heads::answer("qa_outputs", h),
        HeadChoice::MaskedLm => {
            let norm = names.norm("vocab_layer_norm", h, EPS);
            let before = transform(linear("vocab_transform", h, h), dims.activation, norm);
            masked_lm(config, &names, before, "vocab_projector.weight", &["vocab_projector.bias"])?
        }
        _ => return Err(heads::none("DistilBERT", choice)),
    };
    let embeddings = Embeddings {
        word: names.base(WORD),
        vocabulary: dims.vocabulary,
        width: h,
        trigram: false,
        positions: Some(positions(config, &names, 0)?),
        token_types: None,
        norm: Some(names.norm(&names.base("embeddings.LayerNorm"), h, EPS)),
        projection: None,
        projection_place: ProjectionPlace::AfterNorm,
    };
    let at = |i| names.base(&format!("transformer.layer.{i}"));
    let layers = (0..dims.layers).map(|i| layer(&names, &dims, &at(i), &ATTENTION, FFN)).collect();
    Ok(encoder(Family::DistilBert, h, embeddings, layers, head))
}
