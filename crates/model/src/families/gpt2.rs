//! GPT-2 (Radford et al. 2019): causal, norms before the blocks, one fused projection for query, key and value.

use super::encoder::scale;
use super::heads::{self, HeadChoice, plain};
use super::names::{Names, tensor};
use crate::config::{Config, MAX_LAYERS, MAX_ROWS, MAX_WIDTH};
use crate::*;

const WORD: &str = "wte.weight";

pub(super) fn architecture(
    config: &Config,
    choice: HeadChoice,
    has: &dyn Fn(&str) -> bool,
) -> Result<Architecture, Error> {
    let names = Names::new(has, "transformer.", WORD);
    config.must_be_false("add_cross_attention", "cross-attention is not supported")?;
    let h = config.size(config.pick(["n_embd", "hidden_size"]), 768, MAX_WIDTH)?;
    let vocabulary = config.size("vocab_size", 50257, MAX_ROWS)?;
    let rows = config.size(config.pick(["n_positions", "max_position_embeddings"]), 1024, MAX_ROWS)?;
    let count = config.count(config.pick(["n_layer", "num_hidden_layers"]), 12, MAX_LAYERS)?;
    let without_bias =
        |own: &str, outputs| Linear { weight: tensor(&format!("{own}.weight")), bias: None, inputs: h, outputs };
    let head = match choice {
        HeadChoice::Hidden => heads::hidden(),
        HeadChoice::Sequence => {
            let mut head = heads::sequence(config, HeadRows::Last, vec![], "score", h)?;
            head.stages = vec![plain(without_bias("score", head.labels.len()))];
            head
        }
        HeadChoice::Token => heads::token(config, "classifier", h)?,
        HeadChoice::Answer => heads::answer("qa_outputs", h),
        HeadChoice::CausalLm => {
            let mut decoder = without_bias("lm_head", vocabulary);
            decoder.weight =
                names.decoder("lm_head.weight", &names.base(WORD), config.flag("tie_word_embeddings", true)?);
            heads::head(HeadRows::All, vec![plain(decoder)], HeadKind::CausalLm)
        }
        _ => return Err(heads::none("GPT-2", choice)),
    };
    let shape = Shape::read(config, h)?;
    Ok(Architecture {
        family: Family::Gpt2,
        hidden: h,
        max_tokens: Some(rows),
        embeddings: Embeddings {
            word: names.base(WORD),
            vocabulary,
            width: h,
            trigram: false,
            positions: Some(PositionTable { name: names.base("wpe.weight"), rows, offset: 0 }),
            token_types: None,
            norm: None,
            projection: None,
            projection_place: ProjectionPlace::AfterNorm,
        },
        layers: (0..count).map(|i| shape.layer(&names, i)).collect(),
        final_norm: Some(names.norm(&names.base("ln_f"), h, shape.eps)),
        head,
    })
}

struct Shape {
    hidden: usize,
    heads: usize,
    inner: usize,
    activation: Activation,
    eps: f32,
    scaled: bool,
    scaled_by_layer: bool,
}

impl Shape {
    fn read(config: &Config, h: usize) -> Result<Shape, Error> {
        let inner = config.size("n_inner", 4 * h, MAX_WIDTH)?;
        if inner > MAX_WIDTH {
            return Err(
                config.refuse("n_inner", &format!("it would be {inner}, and {MAX_WIDTH} is the most supported"))
            );
        }
        Ok(Shape {
            hidden: h,
            heads: config.heads(config.pick(["n_head", "num_attention_heads"]), 12, h)?,
            inner,
            activation: config.activation("activation_function", "gelu_new")?,
            eps: config.epsilon("layer_norm_epsilon", 1e-5)?,
            scaled: config.flag("scale_attn_weights", true)?,
            scaled_by_layer: config.flag("scale_attn_by_inverse_layer_idx", false)?,
        })
    }

    fn layer(&self, names: &Names, index: usize) -> Layer {
        let (h, at) = (self.hidden, names.base(&format!("h.{index}")));
        // Conv1D: stored input-major.
        let conv = |part: &str, inputs, outputs, slice| Linear {
            weight: Matrix::Tensor { name: format!("{at}.{part}.weight"), in_out: true, slice },
            bias: Some(Bias { name: format!("{at}.{part}.bias"), slice }),
            inputs,
            outputs,
        };
        let third = |i| conv("attn.c_attn", h, h, Some((i * h, (i + 1) * h)));
        let by_width = if self.scaled { scale(h / self.heads) } else { 1.0 };
        let by_layer = if self.scaled_by_layer { (index + 1) as f32 } else { 1.0 };
        Layer {
            norm_first: true,
            bottleneck: None,
            attention: Attention {
                heads: self.heads,
                kept: None,
                head_width: h / self.heads,
                scale: by_width / by_layer,
                query: third(0),
                key: third(1),
                value: third(2),
                output: conv("attn.c_proj", h, h, None),
                causal: true,
                position: AttentionPosition::None,
                window: None,
                network: None,
            },
            attention_norm: names.norm(&format!("{at}.ln_1"), h, self.eps),
            ffns: vec![Ffn {
                up: conv("mlp.c_fc", h, self.inner, None),
                activation: self.activation,
                down: conv("mlp.c_proj", self.inner, h, None),
                norm: names.norm(&format!("{at}.ln_2"), h, self.eps),
            }],
        }
    }
}
