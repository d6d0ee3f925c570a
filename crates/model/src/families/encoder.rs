//! What BERT and its descendants share: dimensions, embeddings, the layer, the classification and vocabulary heads.

use super::heads::{self, activated, plain, transform};
use super::names::{Names, bias, linear};
use crate::config::{Config, MAX_LAYERS, MAX_ROWS, MAX_WIDTH};
use crate::*;

/// Name of the word table, after the prefix.
pub(super) const WORD: &str = "embeddings.word_embeddings.weight";

/// The numbers the encoders share, under the names they share.
pub(super) struct Dims {
    pub(super) hidden: usize,
    pub(super) heads: usize,
    pub(super) inner: usize,
    pub(super) layers: usize,
    pub(super) vocabulary: usize,
    pub(super) activation: Activation,
    pub(super) eps: f32,
}

/// What Python assumes for fields that are not in the file: hidden width, heads, inner width, layers, vocabulary, activation.
pub(super) type Defaults = (usize, usize, usize, usize, usize, &'static str);
/// BERT-base's.
pub(super) const BASE: Defaults = (768, 12, 3072, 12, 30522, "gelu");

impl Dims {
    /// Reads them, and refuses what would change the network without showing in the tensors.
    pub(super) fn read(config: &Config, defaults: Defaults) -> Result<Dims, Error> {
        let (hidden, heads, inner, layers, vocabulary, activation) = defaults;
        config
            .must_be_false("is_decoder", "only encoders of this family are supported; use a GPT-2 model to generate")?;
        config.must_be_false("add_cross_attention", "cross-attention is not supported")?;
        if config.text("position_embedding_type", "absolute")? != "absolute" {
            return Err(config.refuse("position_embedding_type", "only \"absolute\" is supported in this family"));
        }
        if config.get("pruned_heads").and_then(serde_json::Value::as_object).is_some_and(|p| !p.is_empty()) {
            return Err(config.refuse("pruned_heads", "models pruned that way are not supported"));
        }
        let hidden = config.size("hidden_size", hidden, MAX_WIDTH)?;
        Ok(Dims {
            hidden,
            heads: config.heads("num_attention_heads", heads, hidden)?,
            inner: config.size("intermediate_size", inner, MAX_WIDTH)?,
            layers: config.count("num_hidden_layers", layers, MAX_LAYERS)?,
            vocabulary: config.size("vocab_size", vocabulary, MAX_ROWS)?,
            activation: config.activation("hidden_act", activation)?,
            eps: config.epsilon("layer_norm_eps", 1e-12)?,
        })
    }
}

/// `1 / sqrt(width)`.
pub(super) fn scale(head_width: usize) -> f32 {
    (1.0 / (head_width as f64).sqrt()) as f32
}

/// Assembles an encoder, whose longest input its position table gives.
pub(super) fn encoder(
    family: Family,
    hidden: usize,
    embeddings: Embeddings,
    layers: Vec<Layer>,
    head: Head,
) -> Architecture {
    let max_tokens = embeddings.positions.as_ref().map(|p| p.rows.saturating_sub(p.offset));
    Architecture { family, hidden, max_tokens, embeddings, layers, final_norm: None, head }
}

/// Word, position and token-type tables of this width and their norm. `offset`: position of the first token.
pub(super) fn embeddings(
    config: &Config,
    names: &Names,
    dims: &Dims,
    width: usize,
    offset: usize,
) -> Result<Embeddings, Error> {
    let types = config.count("type_vocab_size", 2, MAX_ROWS)?;
    let type_table = TokenTypeTable { name: names.base("embeddings.token_type_embeddings.weight"), rows: types };
    Ok(Embeddings {
        word: names.base(WORD),
        vocabulary: dims.vocabulary,
        width,
        trigram: false,
        positions: Some(positions(config, names, offset)?),
        token_types: (types > 0).then_some(type_table),
        norm: Some(names.norm(&names.base("embeddings.LayerNorm"), width, dims.eps)),
        projection: None,
        projection_place: ProjectionPlace::AfterNorm,
    })
}

/// The position table.
pub(super) fn positions(config: &Config, names: &Names, offset: usize) -> Result<PositionTable, Error> {
    let rows = config.size("max_position_embeddings", 512, MAX_ROWS)?;
    if rows <= offset {
        let why = format!("it must exceed {offset}, the position of the first token");
        return Err(config.refuse("max_position_embeddings", &why));
    }
    Ok(PositionTable { name: names.base("embeddings.position_embeddings.weight"), rows, offset })
}

/// Where RoBERTa and its kin start counting positions: after the padding token's id.
pub(super) fn after_padding(config: &Config) -> Result<usize, Error> {
    Ok(config.count("pad_token_id", 1, MAX_ROWS)? + 1)
}

/// Names of the parts of a layer's attention, relative to the layer.
pub(super) struct AttentionNames {
    pub(super) query: &'static str,
    pub(super) key: &'static str,
    pub(super) value: &'static str,
    pub(super) output: &'static str,
    pub(super) norm: &'static str,
}

/// BERT's.
pub(super) const BERT_ATTENTION: AttentionNames = AttentionNames {
    query: "attention.self.query",
    key: "attention.self.key",
    value: "attention.self.value",
    output: "attention.output.dense",
    norm: "attention.output.LayerNorm",
};

/// Names of the feed-forward block's parts: up, down, norm.
pub(super) const BERT_FFN: [&str; 3] = ["intermediate.dense", "output.dense", "output.LayerNorm"];

/// `encoder.layer.0` and so on, with BERT's names.
pub(super) fn layers(names: &Names, dims: &Dims) -> Vec<Layer> {
    (0..dims.layers)
        .map(|i| layer(names, dims, &names.base(&format!("encoder.layer.{i}")), &BERT_ATTENTION, BERT_FFN))
        .collect()
}

/// One plain encoder layer whose tensors begin with `at`.
pub(super) fn layer(names: &Names, dims: &Dims, at: &str, attention: &AttentionNames, ffn: [&str; 3]) -> Layer {
    let h = dims.hidden;
    let square = |part: &str| linear(&format!("{at}.{part}"), h, h);
    Layer {
        norm_first: false,
        bottleneck: None,
        attention: Attention {
            heads: dims.heads,
            kept: None,
            head_width: h / dims.heads,
            scale: scale(h / dims.heads),
            query: square(attention.query),
            key: square(attention.key),
            value: square(attention.value),
            output: square(attention.output),
            causal: false,
            position: AttentionPosition::None,
            window: None,
            network: None,
        },
        attention_norm: names.norm(&format!("{at}.{}", attention.norm), h, dims.eps),
        ffns: vec![Ffn {
            up: linear(&format!("{at}.{}", ffn[0]), h, dims.inner),
            activation: dims.activation,
            down: linear(&format!("{at}.{}", ffn[1]), dims.inner, h),
            norm: names.norm(&format!("{at}.{}", ffn[2]), h, dims.eps),
        }],
    }
}

/// `classifier.dense`, a non-linearity, `classifier.out_proj` on the first token (RoBERTa, ELECTRA, MPNet, Longformer).
pub(super) fn two_layer_classifier(config: &Config, hidden: usize, activation: Activation) -> Result<Head, Error> {
    let dense = activated(linear("classifier.dense", hidden, hidden), activation);
    heads::sequence(config, HeadRows::First, vec![dense], "classifier.out_proj", hidden)
}

/// A masked-word head: `before` to the embedding's width, then the (usually tied) table and a bias.
pub(super) fn masked_lm(
    config: &Config,
    names: &Names,
    before: HeadStage,
    decoder: &str,
    biases: &[&str],
) -> Result<Head, Error> {
    let (width, vocabulary) =
        (before.linear.as_ref().map_or(0, |l| l.outputs), config.size("vocab_size", 0, MAX_ROWS)?);
    let tied = config.flag("tie_word_embeddings", true)?;
    let decoder = Linear {
        weight: names.decoder(decoder, &names.base(WORD), tied),
        bias: bias(&names.any(biases)),
        inputs: width,
        outputs: vocabulary,
    };
    Ok(heads::head(HeadRows::All, vec![before, plain(decoder)], HeadKind::MaskedLm))
}

/// RoBERTa's `lm_head`, which MPNet and Longformer share: GELU whatever `hidden_act` says.
pub(super) fn lm_head(config: &Config, names: &Names, dims: &Dims) -> Result<Head, Error> {
    let h = dims.hidden;
    let before =
        transform(linear("lm_head.dense", h, h), Activation::Gelu, names.norm("lm_head.layer_norm", h, dims.eps));
    masked_lm(config, names, before, "lm_head.decoder.weight", &["lm_head.decoder.bias", "lm_head.bias"])
}
