//! MobileBERT (Sun et al. 2020, <https://arxiv.org/abs/2004.02984>): thin layers inside bottlenecks, norms without
//! statistics, embeddings of three neighbouring words.

use super::encoder::*;
use super::heads::{self, HeadChoice, activated, transform};
use super::names::{Names, linear, tensor};
use crate::config::{Config, MAX_WIDTH};
use crate::*;

/// PyTorch's own default, where the reference does not pass the configured one.
const TORCH_EPS: f32 = 1e-5;
/// The most feed-forward blocks a layer may stack.
const MAX_FFNS: usize = 64;

pub(super) fn architecture(
    config: &Config,
    choice: HeadChoice,
    has: &dyn Fn(&str) -> bool,
) -> Result<Architecture, Error> {
    let names = Names::new(has, "mobilebert.", WORD);
    let dims = Dims::read(config, (512, 4, 512, 24, 30522, "relu"))?;
    let h = dims.hidden;
    let kind = match config.text("normalization_type", "no_norm")? {
        "no_norm" => NormKind::Affine,
        "layer_norm" => NormKind::Layer,
        _ => return Err(config.refuse("normalization_type", "supported are \"no_norm\" and \"layer_norm\"")),
    };
    let head = match choice {
        HeadChoice::Hidden => heads::hidden(),
        HeadChoice::Sequence => {
            let dense = activated(linear(&names.base("pooler.dense"), h, h), Activation::Tanh);
            let pooler = if config.flag("classifier_activation", true)? { vec![dense] } else { vec![] };
            heads::sequence(config, HeadRows::First, pooler, "classifier", h)?
        }
        HeadChoice::Token => heads::token(config, "classifier", h)?,
        HeadChoice::Answer => heads::answer("qa_outputs", h),
        HeadChoice::MaskedLm => masked_words(config, &names, &dims)?,
        _ => return Err(heads::none("MobileBERT", choice)),
    };
    let normed = |name: &str, width, eps| Norm { kind, ..names.norm(name, width, eps) };
    // The words before and after may stand beside each.
    let width = config.size("embedding_size", 128, MAX_WIDTH / 3)?;
    let mut embeddings = embeddings(config, &names, &dims, width, 0)?;
    embeddings.trigram = config.flag("trigram_input", true)?;
    embeddings.norm = Some(normed(&names.base("embeddings.LayerNorm"), h, TORCH_EPS));
    let inputs = if embeddings.trigram { 3 * width } else { width };
    embeddings.projection = (embeddings.trigram || width != h)
        .then(|| linear(&names.base("embeddings.embedding_transformation"), inputs, h));
    embeddings.projection_place = ProjectionPlace::BeforeSum;

    let shape = Shape::read(config, &dims)?;
    let layers =
        (0..dims.layers).map(|i| layer(&dims, &shape, &names.base(&format!("encoder.layer.{i}")), &normed)).collect();
    Ok(encoder(Family::MobileBert, h, embeddings, layers, head))
}

/// What the bottleneck settings amount to.
struct Shape {
    /// Width inside a layer.
    narrow: usize,
    bottleneck: bool,
    shared: bool,
    query_key_from: Source,
    value_from: Source,
    ffns: usize,
}

impl Shape {
    fn read(config: &Config, dims: &Dims) -> Result<Shape, Error> {
        let bottleneck = config.flag("use_bottleneck", true)?;
        let inside = config.size("intra_bottleneck_size", 128, MAX_WIDTH)?;
        let narrow = if bottleneck { inside } else { dims.hidden };
        if !narrow.is_multiple_of(dims.heads) {
            return Err(config
                .refuse("num_attention_heads", &format!("it must divide the width inside the bottleneck, {narrow}")));
        }
        let narrow_attention = config.flag("use_bottleneck_attention", false)?;
        let shared = config.flag("key_query_shared_bottleneck", true)? && !narrow_attention;
        let (query_key_from, value_from) = match (narrow_attention, shared) {
            (true, _) => (Source::Narrow, Source::Narrow),
            (false, true) => (Source::Shared, Source::Hidden),
            (false, false) => (Source::Hidden, Source::Hidden),
        };
        if bottleneck && query_key_from == Source::Hidden && narrow != dims.hidden {
            let why = "without it and without \"use_bottleneck_attention\" the query's width does not fit, in the reference too";
            return Err(config.refuse("key_query_shared_bottleneck", why));
        }
        let ffns = config.size("num_feedforward_networks", 4, MAX_FFNS)?;
        Ok(Shape { narrow, bottleneck, shared, query_key_from, value_from, ffns })
    }
}

fn layer(dims: &Dims, shape: &Shape, at: &str, normed: &dyn Fn(&str, usize, f32) -> Norm) -> Layer {
    let (h, n, inner) = (dims.hidden, shape.narrow, dims.inner);
    let bottleneck = |part: &str, inputs, outputs| NormedLinear {
        linear: linear(&format!("{at}.{part}.dense"), inputs, outputs),
        norm: normed(&format!("{at}.{part}.LayerNorm"), outputs, dims.eps),
    };
    let ffn = |part: &str, eps| Ffn {
        up: linear(&format!("{at}.{part}intermediate.dense"), n, inner),
        activation: dims.activation,
        down: linear(&format!("{at}.{part}output.dense"), inner, n),
        norm: normed(&format!("{at}.{part}output.LayerNorm"), n, eps),
    };
    let mut ffns: Vec<Ffn> = (0..shape.ffns - 1).map(|i| ffn(&format!("ffn.{i}."), dims.eps)).collect();
    ffns.push(ffn("", TORCH_EPS));
    let values = if shape.value_from == Source::Narrow { n } else { h };
    Layer {
        norm_first: false,
        bottleneck: shape.bottleneck.then(|| Bottleneck {
            input: bottleneck("bottleneck.input", h, n),
            shared: shape.shared.then(|| bottleneck("bottleneck.attention", h, n)),
            query_key_from: shape.query_key_from,
            value_from: shape.value_from,
            output: bottleneck("output.bottleneck", n, h),
        }),
        attention: Attention {
            heads: dims.heads,
            kept: None,
            head_width: n / dims.heads,
            scale: scale(n / dims.heads),
            query: linear(&format!("{at}.attention.self.query"), n, n),
            key: linear(&format!("{at}.attention.self.key"), n, n),
            value: linear(&format!("{at}.attention.self.value"), values, n),
            output: linear(&format!("{at}.attention.output.dense"), n, n),
            causal: false,
            position: AttentionPosition::None,
            window: None,
            network: None,
        },
        attention_norm: normed(&format!("{at}.attention.output.LayerNorm"), n, dims.eps),
        ffns,
    }
}

/// The word table covers the first `embedding_size` inputs, `dense` (stored input-major) the others.
fn masked_words(config: &Config, names: &Names, dims: &Dims) -> Result<Head, Error> {
    let h = dims.hidden;
    let width = config.size("embedding_size", 128, MAX_WIDTH)?;
    let norm = names.norm("cls.predictions.transform.LayerNorm", h, dims.eps);
    let before = transform(linear("cls.predictions.transform.dense", h, h), dims.activation, norm);
    let biases = ["cls.predictions.decoder.bias", "cls.predictions.bias"];
    let mut head = masked_lm(config, names, before, "cls.predictions.decoder.weight", &biases)?;
    if width > h {
        return Err(config.refuse("embedding_size", &format!("it must not exceed \"hidden_size\", {h}")));
    }
    if width < h
        && let Some(Linear { weight, .. }) = head.stages.last_mut().and_then(|stage| stage.linear.as_mut())
    {
        let words = std::mem::replace(weight, tensor(""));
        let rest = Matrix::Tensor { name: "cls.predictions.dense.weight".into(), in_out: true, slice: None };
        *weight = Matrix::ConcatInputs(vec![(words, width), (rest, h - width)]);
    }
    Ok(head)
}
