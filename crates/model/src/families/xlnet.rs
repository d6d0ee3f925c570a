//! XLNet (Yang et al. 2019, <https://arxiv.org/abs/1906.08237>): relative positions inside attention, no position table.

use super::encoder::scale;
use super::heads::{self, HeadChoice, activated, plain};
use super::names::{Names, bias, linear};
use crate::config::{Config, MAX_LAYERS, MAX_ROWS, MAX_WIDTH};
use crate::*;

const WORD: &str = "word_embedding.weight";

pub(super) fn architecture(
    config: &Config,
    choice: HeadChoice,
    has: &dyn Fn(&str) -> bool,
) -> Result<Architecture, Error> {
    let names = Names::new(has, "transformer.", WORD);
    let h = config.size(config.pick(["d_model", "hidden_size"]), 1024, MAX_WIDTH)?;
    let vocabulary = config.size(config.pick(["vocab_size", "n_token"]), 32000, MAX_ROWS)?;
    let count = config.count(config.pick(["n_layer", "num_hidden_layers"]), 24, MAX_LAYERS)?;
    config.must_be_false("bi_data", "batches read in both directions are not supported")?;
    config.must_be_false("same_length", "only full attention is supported")?;
    let head = match choice {
        HeadChoice::Hidden => heads::hidden(),
        HeadChoice::Sequence => {
            let (rows, summary) = summary(config, h)?;
            heads::sequence(config, rows, summary, "logits_proj", h)?
        }
        HeadChoice::Token => heads::token(config, "classifier", h)?,
        HeadChoice::Answer if names.has("start_logits.dense.weight") => return Err(beam()),
        HeadChoice::Answer => heads::answer("qa_outputs", h),
        HeadChoice::CausalLm => {
            let tied = config.flag("tie_word_embeddings", true)?;
            let decoder = Linear {
                weight: names.decoder("lm_loss.weight", &names.base(WORD), tied),
                bias: bias("lm_loss.bias"),
                inputs: h,
                outputs: vocabulary,
            };
            heads::head(HeadRows::All, vec![plain(decoder)], HeadKind::CausalLm)
        }
        _ => return Err(heads::none("XLNet", choice)),
    };
    let layer = LayerShape::read(config, h)?;
    Ok(Architecture {
        family: Family::XlNet,
        hidden: h,
        max_tokens: None,
        embeddings: Embeddings {
            word: names.base(WORD),
            vocabulary,
            width: h,
            trigram: false,
            positions: None,
            token_types: None,
            norm: None,
            projection: None,
            projection_place: ProjectionPlace::AfterNorm,
        },
        layers: (0..count).map(|i| layer.build(&names, &names.base(&format!("layer.{i}")))).collect(),
        final_norm: None,
        head,
    })
}

/// The error for the head that searches start and end together.
pub(super) fn beam() -> Error {
    Error::new(
        "config.json: \"architectures\" is \"XLNetForQuestionAnswering\", whose beam-search head is not supported; \
         supported is XLNetForQuestionAnsweringSimple",
    )
}

/// `sequence_summary`: which row, and the stage that stands before the classifier.
fn summary(config: &Config, h: usize) -> Result<(HeadRows, Vec<HeadStage>), Error> {
    let rows = match config.text("summary_type", "last")? {
        "last" | "cls_index" => HeadRows::Last,
        "first" => HeadRows::First,
        "mean" => HeadRows::Mean,
        _ => return Err(config.refuse("summary_type", "supported are last, first, mean and cls_index")),
    };
    config.must_be_false("summary_proj_to_labels", "only a projection of the hidden width is supported")?;
    let null = config.is_null("summary_activation");
    let activation = if null { Activation::Identity } else { config.activation("summary_activation", "tanh")? };
    let projection = linear("sequence_summary.summary", h, h);
    Ok((
        rows,
        if config.flag("summary_use_proj", true)? {
            vec![activated(projection, activation)]
        } else if activation == Activation::Identity {
            vec![]
        } else {
            vec![HeadStage { linear: None, activation, norm: None }]
        },
    ))
}

struct LayerShape {
    hidden: usize,
    heads: usize,
    inner: usize,
    activation: Activation,
    eps: f32,
    causal: bool,
    clamp: Option<usize>,
}

impl LayerShape {
    fn read(config: &Config, h: usize) -> Result<LayerShape, Error> {
        let heads = config.heads(config.pick(["n_head", "num_attention_heads"]), 16, h)?;
        if config.size("d_head", h / heads, MAX_WIDTH)? != h / heads {
            return Err(config.refuse("d_head", &format!("it must be \"d_model\" / \"n_head\", {}", h / heads)));
        }
        let clamp = config.number("clamp_len", -1.0)?;
        Ok(LayerShape {
            hidden: h,
            heads,
            inner: config.size("d_inner", 4096, MAX_WIDTH)?,
            activation: config.activation("ff_activation", "gelu")?,
            eps: config.epsilon("layer_norm_eps", 1e-12)?,
            causal: match config.text("attn_type", "bi")? {
                "bi" => false,
                "uni" => true,
                _ => return Err(config.refuse("attn_type", "supported are \"bi\" and \"uni\"")),
            },
            clamp: if clamp > 0.0 { Some(config.count("clamp_len", 0, MAX_ROWS)?) } else { None },
        })
    }

    fn build(&self, names: &Names, at: &str) -> Layer {
        let h = self.hidden;
        // q, k, v and r are `[hidden, heads, head width]`, from left to right; o is read from right to left.
        let matrix = |part: &str, in_out| Linear {
            weight: Matrix::Tensor { name: format!("{at}.rel_attn.{part}"), in_out, slice: None },
            bias: None,
            inputs: h,
            outputs: h,
        };
        let part = |name: &str| format!("{at}.rel_attn.{name}");
        Layer {
            norm_first: false,
            bottleneck: None,
            attention: Attention {
                heads: self.heads,
                kept: None,
                head_width: h / self.heads,
                scale: scale(h / self.heads),
                query: matrix("q", true),
                key: matrix("k", true),
                value: matrix("v", true),
                output: matrix("o", false),
                causal: self.causal,
                position: AttentionPosition::Relative {
                    projection: matrix("r", true),
                    content_bias: part("r_w_bias"),
                    position_bias: part("r_r_bias"),
                    segment_bias: part("r_s_bias"),
                    segments: part("seg_embed"),
                    clamp: self.clamp,
                },
                window: None,
                network: None,
            },
            attention_norm: names.norm(&part("layer_norm"), h, self.eps),
            ffns: vec![Ffn {
                up: linear(&format!("{at}.ff.layer_1"), h, self.inner),
                activation: self.activation,
                down: linear(&format!("{at}.ff.layer_2"), self.inner, h),
                norm: names.norm(&format!("{at}.ff.layer_norm"), h, self.eps),
            }],
        }
    }
}
