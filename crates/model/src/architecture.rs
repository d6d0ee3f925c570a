//! The network as published, normalised from `config.json`.
//!
//! One description serves every family: an embedding stage, a list of layers, an optional final norm
//! and a head. Every weight is addressed by its full tensor name in the file, so whoever executes the
//! architecture (the CPU engine, Burn) needs no knowledge of families at all.

use serde::{Deserialize, Serialize};

/// Which published family the directory belongs to. Only reading and writing look at this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Family {
    Bert,
    DistilBert,
    Roberta,
    Albert,
    MpNet,
    Electra,
    MobileBert,
    Longformer,
    XlNet,
    Gpt2,
}

/// A whole network.
#[derive(Debug, Clone, PartialEq)]
pub struct Architecture {
    /// The published family.
    pub family: Family,
    /// Width of the hidden states between layers.
    pub hidden: usize,
    /// The longest input in tokens, special tokens included. `None`: no limit (relative positions).
    pub max_tokens: Option<usize>,
    /// From token ids to the first hidden state.
    pub embeddings: Embeddings,
    /// The layers in the order they run. Layers that share weights (ALBERT) name the same tensors.
    pub layers: Vec<Layer>,
    /// Applied to the last hidden state (GPT-2).
    pub final_norm: Option<Norm>,
    /// What is computed from the last hidden state.
    pub head: Head,
}

/// A weight matrix of `outputs` x `inputs`, and where its numbers are.
#[derive(Debug, Clone, PartialEq)]
pub enum Matrix {
    /// One tensor. `in_out`: stored `[inputs, outputs]` (GPT-2's Conv1D, XLNet's q/k/v) instead of `[outputs, inputs]`.
    /// Trailing axes of tensors with more than two axes are merged.
    Tensor {
        /// Full tensor name.
        name: String,
        /// Stored input-major.
        in_out: bool,
        /// Only these outputs of the stored tensor (`start..end`), for tensors that fuse several matrices (GPT-2's `c_attn`).
        slice: Option<(usize, usize)>,
    },
    /// The inputs are split in order over several matrices (MobileBERT's decoder).
    ConcatInputs(Vec<(Matrix, usize)>),
}

impl Matrix {
    /// What the matrix is called: its tensor's name, with the part of a fused one (`c_attn.weight[0..768]`); the first of
    /// joined ones.
    pub fn name(&self) -> String {
        match self {
            Matrix::Tensor { name, slice: None, .. } => name.clone(),
            Matrix::Tensor { name, slice: Some((start, end)), .. } => format!("{name}[{start}..{end}]"),
            Matrix::ConcatInputs(parts) => parts.first().map(|(part, _)| part.name()).unwrap_or_default(),
        }
    }
}

/// `y = W x + b`. A map without inputs or outputs has no matrix, and no tensor that would hold it: without inputs its bias is
/// left, without outputs nothing is.
#[derive(Debug, Clone, PartialEq)]
pub struct Linear {
    /// The matrix.
    pub weight: Matrix,
    /// Name of the bias of length `outputs`.
    pub bias: Option<Bias>,
    /// Width of x.
    pub inputs: usize,
    /// Width of y.
    pub outputs: usize,
}

/// A bias vector, or a slice of one.
#[derive(Debug, Clone, PartialEq)]
pub struct Bias {
    /// Full tensor name.
    pub name: String,
    /// Only these elements (`start..end`).
    pub slice: Option<(usize, usize)>,
}

/// Normalisation of one row.
#[derive(Debug, Clone, PartialEq)]
pub struct Norm {
    /// How.
    pub kind: NormKind,
    /// Name of the scale.
    pub weight: String,
    /// Name of the shift.
    pub bias: String,
    /// Row width.
    pub width: usize,
    /// Added to the variance.
    pub eps: f32,
}

/// How a [`Norm`] normalises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormKind {
    /// `(x - mean) / sqrt(var + eps) * weight + bias`.
    Layer,
    /// `x * weight + bias` (MobileBERT's NoNorm).
    Affine,
    /// `x / sqrt(phi + eps) * weight + bias`, phi one number per channel ([`Norm::running_phi`]): the mean of `x²` over
    /// tokens, kept from training (PowerNorm, Shen et al. 2020, <https://arxiv.org/abs/2003.07845>).
    Power,
}

impl Norm {
    /// Name of PowerNorm's phi, `[width]`, beside the scale.
    pub fn running_phi(&self) -> String {
        let beside = self.weight.rsplit_once('.').map_or("", |(beside, _)| beside);
        format!("{beside}.running_phi")
    }
}

/// Element-wise non-linearities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// `x`.
    Identity,
    /// `x * Phi(x)` with the exact error function.
    Gelu,
    /// The tanh approximation of GELU (`gelu_new`, `gelu_pytorch_tanh`).
    GeluTanh,
    /// `max(x, 0)`.
    Relu,
    /// `tanh(x)`.
    Tanh,
    /// `x * sigmoid(x)`.
    Silu,
    /// `min(max(x, -1), 1)`.
    Clip,
}

/// From token ids to the first hidden state.
///
/// `word[id]` (optionally the trigram of the neighbours' embeddings), plus position, plus token type,
/// then the norm. The projection to the hidden width stands where `projection_place` says.
#[derive(Debug, Clone, PartialEq)]
pub struct Embeddings {
    /// Name of the word table, `[vocabulary, width]`.
    pub word: String,
    /// Rows of the word table.
    pub vocabulary: usize,
    /// Width of one word embedding.
    pub width: usize,
    /// Concatenate the embeddings of the next, this and the previous token (MobileBERT): `[x[i+1], x[i], x[i-1]]`, zeros beyond the ends.
    pub trigram: bool,
    /// Learned absolute positions.
    pub positions: Option<PositionTable>,
    /// Token-type (segment) table.
    pub token_types: Option<TokenTypeTable>,
    /// Norm after the sum.
    pub norm: Option<Norm>,
    /// From the embedding's width to the hidden width.
    pub projection: Option<Linear>,
    /// Where the projection stands.
    pub projection_place: ProjectionPlace,
}

/// Where [`Embeddings::projection`] is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProjectionPlace {
    /// To the word embedding, before positions and token types are added (MobileBERT).
    BeforeSum,
    /// After the norm (ALBERT, ELECTRA).
    AfterNorm,
}

/// Learned absolute positions: token `i` of a sequence adds row `offset + i`.
#[derive(Debug, Clone, PartialEq)]
pub struct PositionTable {
    /// Tensor name, `[rows, width]`.
    pub name: String,
    /// Rows of the table.
    pub rows: usize,
    /// Row of the first token (RoBERTa and its kin start after the padding index).
    pub offset: usize,
}

/// Token types: token of type `t` adds row `t`.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenTypeTable {
    /// Tensor name, `[rows, width]`.
    pub name: String,
    /// Rows of the table.
    pub rows: usize,
}

/// One Transformer layer: attention, then one or more feed-forward blocks, each with a residual and a norm.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// Norms stand before each block (GPT-2) instead of after the residual.
    pub norm_first: bool,
    /// Present in MobileBERT: the layer works inside a narrower width.
    pub bottleneck: Option<Bottleneck>,
    /// The attention block.
    pub attention: Attention,
    /// Norm of the attention block.
    pub attention_norm: Norm,
    /// Feed-forward blocks in order; MobileBERT stacks several, everyone else has one.
    pub ffns: Vec<Ffn>,
}

/// MobileBERT's bottleneck around a layer.
///
/// `narrow = input(hidden)` is the residual stream inside the layer; the layer's result is
/// `output_norm(output(inner) + hidden)`.
#[derive(Debug, Clone, PartialEq)]
pub struct Bottleneck {
    /// Hidden to narrow.
    pub input: NormedLinear,
    /// A second hidden-to-narrow map, source of queries and keys when present.
    pub shared: Option<NormedLinear>,
    /// What queries and keys are computed from.
    pub query_key_from: Source,
    /// What values are computed from.
    pub value_from: Source,
    /// Narrow to hidden; its norm comes after the residual.
    pub output: NormedLinear,
}

/// What a projection inside a bottlenecked layer reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The layer's input, full width.
    Hidden,
    /// [`Bottleneck::input`]'s result.
    Narrow,
    /// [`Bottleneck::shared`]'s result.
    Shared,
}

/// A linear map followed by a norm.
#[derive(Debug, Clone, PartialEq)]
pub struct NormedLinear {
    /// The map.
    pub linear: Linear,
    /// The norm.
    pub norm: Norm,
}

/// Multi-head attention.
#[derive(Debug, Clone, PartialEq)]
pub struct Attention {
    /// Number of heads; 0 where the block was removed and only the output projection's bias is left of it.
    pub heads: usize,
    /// Which of the published heads these are, in order; `None`: all of them.
    pub kept: Option<Vec<usize>>,
    /// Width of one head; q, k and v are `heads * head_width` wide.
    pub head_width: usize,
    /// Scores are multiplied by this (usually `1 / sqrt(head_width)`).
    pub scale: f32,
    /// Query projection.
    pub query: Linear,
    /// Key projection.
    pub key: Linear,
    /// Value projection.
    pub value: Linear,
    /// Output projection.
    pub output: Linear,
    /// A token sees itself and earlier tokens only.
    pub causal: bool,
    /// Position information inside the scores.
    pub position: AttentionPosition,
    /// Present in Longformer: sliding window plus global tokens.
    pub window: Option<Window>,
    /// What makes shares of scores in softmax's place.
    pub network: Option<ShareNetwork>,
}

/// `output(relu(hidden(x)))` of a row x of scores, in softmax's place (MA-BERT). Scores of tokens that are not there are
/// zeros, and so are their values.
#[derive(Debug, Clone, PartialEq)]
pub struct ShareNetwork {
    /// The longest input.
    pub tokens: usize,
    /// From a score per token (or per projected key) to the inner width.
    pub hidden: Linear,
    /// Back.
    pub output: Linear,
    /// Keys and values are projected first, along the tokens: to as many as the network has inputs (Linformer).
    pub projections: Option<Projections>,
}

/// Maps along the tokens of a sequence, `[keys, tokens]` each, without bias.
#[derive(Debug, Clone, PartialEq)]
pub struct Projections {
    /// Of keys.
    pub keys: Linear,
    /// Of values.
    pub values: Linear,
}

impl ShareNetwork {
    /// Its maps.
    pub fn maps(&self) -> impl Iterator<Item = &Linear> {
        let projections = self.projections.iter().flat_map(|p| [&p.keys, &p.values]);
        [&self.hidden, &self.output].into_iter().chain(projections)
    }
}

/// Position information inside attention scores.
#[derive(Debug, Clone, PartialEq)]
pub enum AttentionPosition {
    /// None: positions came with the embeddings.
    None,
    /// A learned bias per bucketed distance and head, added after scaling (MPNet; T5's buckets, bidirectional).
    Buckets {
        /// Tensor name, `[buckets, columns]`.
        table: String,
        /// Columns of the table, which layers share: one for each published head.
        columns: usize,
        /// Number of buckets.
        buckets: usize,
        /// Distances from here on share the last bucket.
        max_distance: usize,
    },
    /// Transformer-XL positions as XLNet uses them: `(q + content_bias)·k + (q + position_bias)·r(i-j) + (q + segment_bias)·s`.
    Relative {
        /// Projection of the sinusoidal encodings, no bias.
        projection: Linear,
        /// `r_w_bias`, `[heads, head_width]`.
        content_bias: String,
        /// `r_r_bias`, `[heads, head_width]`.
        position_bias: String,
        /// `r_s_bias`, `[heads, head_width]`.
        segment_bias: String,
        /// `seg_embed`, `[2, heads, head_width]`: row 0 for the same segment, row 1 for a different one.
        segments: String,
        /// Clamp distances to this, if positive (`clamp_len`).
        clamp: Option<usize>,
    },
}

/// Longformer's sliding window with global tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// A token sees this many tokens to each side.
    pub one_sided: usize,
    /// Query projection of global tokens.
    pub global_query: Linear,
    /// Key projection that global queries see.
    pub global_key: Linear,
    /// Value projection that global queries see.
    pub global_value: Linear,
}

/// A feed-forward block.
#[derive(Debug, Clone, PartialEq)]
pub struct Ffn {
    /// Hidden to inner.
    pub up: Linear,
    /// Between the two.
    pub activation: Activation,
    /// Inner to hidden.
    pub down: Linear,
    /// The block's norm.
    pub norm: Norm,
}

/// What is computed from the last hidden state: rows are chosen, stages run on them, the kind says what the numbers mean.
#[derive(Debug, Clone, PartialEq)]
pub struct Head {
    /// Which rows the head reads. A layer above computes no others.
    pub rows: HeadRows,
    /// Run in order on each row that is read.
    pub stages: Vec<HeadStage>,
    /// What comes out.
    pub kind: HeadKind,
    /// Names of the outputs, in order (`id2label`); empty for kinds without labels.
    pub labels: Vec<String>,
    /// Longformer: which tokens attend globally when the caller does not say.
    pub global_tokens: GlobalTokens,
}

/// Which rows of the last hidden state a head reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadRows {
    /// The first token (`[CLS]`).
    First,
    /// The last token.
    Last,
    /// Every token.
    All,
    /// The mean over all tokens.
    Mean,
    /// The largest value of each channel over all tokens.
    Max,
}

/// One stage of a head: `norm(activation(linear(x)))`, each part optional.
#[derive(Debug, Clone, PartialEq)]
pub struct HeadStage {
    /// Linear map.
    pub linear: Option<Linear>,
    /// Non-linearity.
    pub activation: Activation,
    /// Norm.
    pub norm: Option<Norm>,
}

/// What a head's outputs are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeadKind {
    /// The hidden states themselves (a bare encoder).
    Hidden,
    /// One label out of several: softmax over the logits of a sequence.
    Classify,
    /// Any number of labels: a sigmoid per logit of a sequence.
    MultiLabel,
    /// Real numbers per sequence.
    Regress,
    /// One label per token.
    TokenClassify,
    /// Start and end logits per token (extractive question answering).
    Answer,
    /// Vocabulary logits per token, the token itself hidden (fill the mask).
    MaskedLm,
    /// Vocabulary logits of the next token.
    CausalLm,
    /// One vector per sequence.
    Embed {
        /// Scale to unit length.
        normalise: bool,
    },
}

/// Which tokens attend globally in a windowed model, by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GlobalTokens {
    /// None.
    None,
    /// The first token (sequence classification).
    First,
    /// All tokens before the first separator with this id, which is not global itself (question answering).
    UntilSeparator(u32),
}

impl Architecture {
    /// The longest input, in tokens: the model's own limit, and what the position table has rows for.
    pub fn longest_input(&self) -> Option<usize> {
        let rows = self.embeddings.positions.as_ref().map(|p| p.rows.saturating_sub(p.offset));
        [self.max_tokens, rows].into_iter().flatten().min()
    }

    /// The last layer that has attention: whatever comes after it needs no rows but those that are wanted.
    pub fn last_attention(&self) -> Option<usize> {
        self.layers.iter().rposition(|layer| layer.attention.heads > 0)
    }
}

/// T5's bucket of a distance `key - query`, both directions: half of each direction's buckets for single
/// distances, the rest growing with the logarithm (Raffel et al. 2020, section 2.1).
pub fn distance_bucket(distance: i64, buckets: usize, max_distance: usize) -> usize {
    let half = buckets / 2;
    let side = if distance > 0 { half } else { 0 };
    let far = distance.unsigned_abs() as usize;
    let exact = half / 2;
    if far < exact {
        return side + far;
    }
    // In f32, as the reference computes it: bucket borders depend on the rounding.
    let log = (far as f32 / exact as f32).ln() / (max_distance as f64 / exact as f64).ln() as f32;
    side + (exact + (log * (half - exact) as f32) as usize).min(half - 1)
}
