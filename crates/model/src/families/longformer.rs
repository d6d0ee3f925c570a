//! Longformer (Beltagy et al. 2020, <https://arxiv.org/abs/2004.05150>): RoBERTa with a sliding window and global tokens.

use super::encoder::*;
use super::heads::{self, HeadChoice};
use super::names::{Names, linear};
use crate::config::{Config, MAX_ROWS};
use crate::*;

/// The widest head whose global keys may stand alone.
const MAX_HEAD_WIDTH: usize = 512;

pub(super) fn architecture(
    config: &Config,
    choice: HeadChoice,
    has: &dyn Fn(&str) -> bool,
) -> Result<Architecture, Error> {
    let names = Names::new(has, "longformer.", WORD);
    let dims = Dims::read(config, BASE)?;
    let h = dims.hidden;
    if h / dims.heads > MAX_HEAD_WIDTH {
        let why = format!("heads of {} numbers are too wide, at most {MAX_HEAD_WIDTH} are supported", h / dims.heads);
        return Err(config.refuse("num_attention_heads", &why));
    }
    let mut head = match choice {
        HeadChoice::Hidden => heads::hidden(),
        HeadChoice::Sequence => two_layer_classifier(config, h, Activation::Tanh)?,
        HeadChoice::Token => heads::token(config, "classifier", h)?,
        HeadChoice::Answer => heads::answer("qa_outputs", h),
        HeadChoice::MaskedLm => lm_head(config, &names, &dims)?,
        _ => return Err(heads::none("Longformer", choice)),
    };
    // As the reference's heads do when the caller gives no global attention mask.
    head.global_tokens = match choice {
        HeadChoice::Sequence => GlobalTokens::First,
        HeadChoice::Answer => GlobalTokens::UntilSeparator(config.count("sep_token_id", 2, MAX_ROWS)? as u32),
        _ => GlobalTokens::None,
    };
    let windows = windows(config, dims.layers)?;
    let mut layers = layers(&names, &dims);
    for (i, (layer, window)) in layers.iter_mut().zip(windows).enumerate() {
        let global = |part: &str| linear(&names.base(&format!("encoder.layer.{i}.attention.self.{part}_global")), h, h);
        layer.attention.window = Some(Window {
            one_sided: window / 2,
            global_query: global("query"),
            global_key: global("key"),
            global_value: global("value"),
        });
    }
    let embeddings = embeddings(config, &names, &dims, h, after_padding(config)?)?;
    Ok(encoder(Family::Longformer, h, embeddings, layers, head))
}

/// The window of each layer: one number for all, or a list.
fn windows(config: &Config, layers: usize) -> Result<Vec<usize>, Error> {
    let why = "an even number from 2 on is expected, or a list with one for each layer";
    let refuse = || config.refuse("attention_window", why);
    let window = |value: &serde_json::Value| {
        value
            .as_u64()
            .map(|w| w as usize)
            .filter(|w| *w >= 2 && *w <= MAX_ROWS && w.is_multiple_of(2))
            .ok_or_else(refuse)
    };
    match config.get("attention_window") {
        None => Ok(vec![512; layers]),
        Some(serde_json::Value::Array(list)) if list.len() == layers => list.iter().map(window).collect(),
        Some(one) => Ok(vec![window(one)?; layers]),
    }
}
