//! BERT (Devlin et al. 2018, <https://arxiv.org/abs/1810.04805>), and the layer its descendants share.

use super::heads::{self, HeadChoice, activated, plain, transform};
use super::names::{Names, bias, linear};
use crate::config::{Config, MAX_LAYERS, MAX_ROWS, MAX_WIDTH};
use crate::*;

const WORD: &str = "embeddings.word_embeddings.weight";

pub(super) fn architecture(
    config: &Config,
    choice: Option<HeadChoice>,
    has: &dyn Fn(&str) -> bool,
) -> Result<Architecture, Error> {
    let names = Names::new(has, "bert.", WORD);
    let dims = Dims::read(config, 1e-12)?;
    let choice = choice.map_or_else(|| HeadChoice::from_config(config, &["Bert"]), Ok)?;
    let embeddings = embeddings(config, &names, &dims, dims.hidden, 0)?;
    let hidden = dims.hidden;
    let head = match choice {
        HeadChoice::Hidden | HeadChoice::Embed => heads::hidden(),
        HeadChoice::Sequence => {
            let pooler = activated(linear(&names.base("pooler.dense"), hidden, hidden), Activation::Tanh);
            heads::sequence(config, HeadRows::First, vec![pooler], "classifier", hidden)?
        }
        HeadChoice::Token => heads::token(config, "classifier", hidden)?,
        HeadChoice::Answer => heads::answer("qa_outputs", hidden),
        HeadChoice::MaskedLm => masked_lm(config, &names, &dims)?,
        HeadChoice::CausalLm => return Err(heads::none("BERT", choice)),
    };
    Ok(Architecture {
        family: Family::Bert,
        hidden,
        max_tokens: embeddings.positions.as_ref().map(|p| p.rows - p.offset),
        layers: layers(&names, &dims),
        embeddings,
        final_norm: None,
        head,
    })
}

fn masked_lm(config: &Config, names: &Names, dims: &Dims) -> Result<Head, Error> {
    let h = dims.hidden;
    let norm = names.norm("cls.predictions.transform.LayerNorm", h, dims.eps);
    let before = transform(linear("cls.predictions.transform.dense", h, h), dims.activation, norm);
    let tied = config.flag("tie_word_embeddings", true)?;
    let decoder = Linear {
        weight: names.decoder("cls.predictions.decoder.weight", &names.base(WORD), tied),
        bias: bias(&names.any(&["cls.predictions.bias".into(), "cls.predictions.decoder.bias".into()])),
        inputs: h,
        outputs: dims.vocabulary,
    };
    Ok(heads::head(HeadRows::All, vec![before, plain(decoder)], HeadKind::MaskedLm))
}

/// The numbers BERT and its descendants share, under the names they share.
pub(super) struct Dims {
    pub(super) hidden: usize,
    pub(super) heads: usize,
    pub(super) inner: usize,
    pub(super) layers: usize,
    pub(super) vocabulary: usize,
    pub(super) activation: Activation,
    pub(super) eps: f32,
}

impl Dims {
    /// Reads them, and refuses what would change the network without showing in the tensors.
    pub(super) fn read(config: &Config, eps: f64) -> Result<Dims, Error> {
        config
            .must_be_false("is_decoder", "only encoders of this family are supported; use a GPT-2 model to generate")?;
        config.must_be_false("add_cross_attention", "cross-attention is not supported")?;
        if config.text("position_embedding_type", "absolute")? != "absolute" {
            return Err(config.refuse("position_embedding_type", "only \"absolute\" is supported in this family"));
        }
        if config.get("pruned_heads").and_then(serde_json::Value::as_object).is_some_and(|p| !p.is_empty()) {
            return Err(config.refuse("pruned_heads", "models pruned that way are not supported"));
        }
        let hidden = config.size("hidden_size", 768, MAX_WIDTH)?;
        Ok(Dims {
            hidden,
            heads: config.heads("num_attention_heads", 12, hidden)?,
            inner: config.size("intermediate_size", 3072, MAX_WIDTH)?,
            layers: config.count("num_hidden_layers", 12, MAX_LAYERS)?,
            vocabulary: config.size("vocab_size", 30522, MAX_ROWS)?,
            activation: config.activation("hidden_act", "gelu")?,
            eps: config.epsilon("layer_norm_eps", eps)?,
        })
    }

    /// `1 / sqrt(head width)`.
    pub(super) fn scale(&self) -> f32 {
        1.0 / ((self.hidden / self.heads) as f32).sqrt()
    }
}

/// Word, position and token-type tables of this width and their norm. `offset`: position of the first token.
pub(super) fn embeddings(
    config: &Config,
    names: &Names,
    dims: &Dims,
    width: usize,
    offset: usize,
) -> Result<Embeddings, Error> {
    let rows = config.size("max_position_embeddings", 512, MAX_ROWS)?;
    if rows <= offset {
        return Err(config.refuse("max_position_embeddings", &format!("it must exceed {offset}, the first position")));
    }
    let types = config.count("type_vocab_size", 2, MAX_ROWS)?;
    Ok(Embeddings {
        word: names.base(WORD),
        vocabulary: dims.vocabulary,
        width,
        trigram: false,
        positions: Some(PositionTable { name: names.base("embeddings.position_embeddings.weight"), rows, offset }),
        token_types: (types > 0)
            .then(|| TokenTypeTable { name: names.base("embeddings.token_type_embeddings.weight"), rows: types }),
        norm: Some(names.norm(&names.base("embeddings.LayerNorm"), width, dims.eps)),
        projection: None,
        projection_place: ProjectionPlace::AfterNorm,
    })
}

/// `encoder.layer.0` and so on.
pub(super) fn layers(names: &Names, dims: &Dims) -> Vec<Layer> {
    (0..dims.layers).map(|i| layer(names, dims, &names.base(&format!("encoder.layer.{i}")))).collect()
}

/// One BERT layer whose tensors begin with `at`.
pub(super) fn layer(names: &Names, dims: &Dims, at: &str) -> Layer {
    let h = dims.hidden;
    Layer {
        norm_first: false,
        bottleneck: None,
        attention: Attention {
            heads: dims.heads,
            head_width: h / dims.heads,
            scale: dims.scale(),
            query: linear(&format!("{at}.attention.self.query"), h, h),
            key: linear(&format!("{at}.attention.self.key"), h, h),
            value: linear(&format!("{at}.attention.self.value"), h, h),
            output: linear(&format!("{at}.attention.output.dense"), h, h),
            causal: false,
            position: AttentionPosition::None,
            window: None,
        },
        attention_norm: names.norm(&format!("{at}.attention.output.LayerNorm"), h, dims.eps),
        ffns: vec![Ffn {
            up: linear(&format!("{at}.intermediate.dense"), h, dims.inner),
            activation: dims.activation,
            down: linear(&format!("{at}.output.dense"), dims.inner, h),
            norm: names.norm(&format!("{at}.output.LayerNorm"), h, dims.eps),
        }],
    }
}
