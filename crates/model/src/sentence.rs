//! Sentence encoders as `sentence-transformers` saves them: pooling, optional dense layers and normalisation, each a
//! module that `modules.json` lists (<https://sbert.net/docs/package_reference/sentence_transformer/models.html>).

use crate::config::{Config, MAX_WIDTH};
use crate::directory::Directory;
use crate::families::{activated, embed, plain};
use crate::families::{bias, tensor};
use crate::weights::{is_plain_name, one_line};
use crate::{Activation, Error, Head, HeadKind, HeadRows, Linear, Matrix, Weights};
use serde_json::Value;

/// What the files say.
pub(crate) struct Sentence {
    /// Pooling, dense stages and normalisation.
    pub(crate) head: Head,
    /// Longest input they were made for.
    pub(crate) max_tokens: Option<usize>,
}

/// The pooling settings that mean something here.
const MODES: [(&str, &str, HeadRows); 4] = [
    ("pooling_mode_cls_token", "cls", HeadRows::First),
    ("pooling_mode_mean_tokens", "mean", HeadRows::Mean),
    ("pooling_mode_max_tokens", "max", HeadRows::Max),
    ("pooling_mode_lasttoken", "lasttoken", HeadRows::Last),
];

/// Reads `modules.json`; `None` if there is none, or none that pools. Weights of dense modules join the others,
/// their names behind the module's path (`2_Dense.linear.weight`).
pub(crate) fn read(directory: &Directory, width: usize, weights: &mut Weights) -> Result<Option<Sentence>, Error> {
    let Some(text) = directory.read("modules.json")? else { return Ok(None) };
    let bad = |why: &str| Error::new(format!("modules.json: {why}"));
    let modules: Value =
        serde_json::from_slice(&text).map_err(|e| bad(&format!("not valid JSON ({})", one_line(&e.to_string()))))?;
    let modules = modules.as_array().ok_or_else(|| bad("a list of modules is expected"))?;
    let (mut head, mut width) = (None, width);
    for module in modules {
        let kind = module.get("type").and_then(Value::as_str).ok_or_else(|| bad("a module has no \"type\""))?;
        let path = module.get("path").and_then(Value::as_str).unwrap_or("");
        if !path.is_empty() && !is_plain_name(path) {
            return Err(bad(&format!(
                "\"path\" is \"{}\", which is not a folder inside the directory",
                one_line(path)
            )));
        }
        let config = || {
            let name = format!("{path}/config.json");
            let text =
                directory.read(&name)?.ok_or_else(|| Error::new(format!("{}: is missing", directory.label(&name))))?;
            Config::parse(&name, &text)
        };
        match (kind.rsplit('.').next().unwrap_or(kind), &mut head) {
            ("Transformer", None) => {}
            ("Pooling", None) => head = Some(embed(pooling(&config()?)?, false)),
            ("Dense", Some(head)) => {
                weights.join(directory, &format!("{path}/model.safetensors"), &format!("{path}."))?;
                let (linear, activation) = dense(&config()?, path, width)?;
                width = linear.outputs;
                head.stages.push(if activation == Activation::Identity {
                    plain(linear)
                } else {
                    activated(linear, activation)
                });
            }
            ("Normalize", Some(head)) => head.kind = HeadKind::Embed { normalise: true },
            _ => {
                let why = format!(
                    "module \"{}\" is not supported here; supported are Transformer, Pooling, Dense and Normalize, in this order",
                    one_line(kind)
                );
                return Err(bad(&why));
            }
        }
    }
    let max_tokens = match directory.read("sentence_bert_config.json")? {
        None => None,
        Some(text) => match Config::parse("sentence_bert_config.json", &text)?.count("max_seq_length", 0, 1 << 24)? {
            0 => None,
            n => Some(n),
        },
    };
    Ok(head.map(|head| Sentence { head, max_tokens }))
}

/// The folders of the modules behind the network, as `modules.json` lists them; none where there is no such file.
pub(crate) fn folders(directory: &Directory) -> Result<Vec<String>, Error> {
    let text = directory.read("modules.json")?.unwrap_or_default();
    let modules: Vec<Value> = serde_json::from_slice(&text).unwrap_or_default();
    let behind = |module: &Value| {
        let kind = module.get("type").and_then(Value::as_str)?;
        let path = module.get("path").and_then(Value::as_str).filter(|path| is_plain_name(path))?;
        (!kind.ends_with("Transformer")).then(|| path.to_string())
    };
    Ok(modules.iter().filter_map(behind).collect())
}

/// Which rows are pooled, from the old flags or the new name.
fn pooling(config: &Config) -> Result<HeadRows, Error> {
    let why = "supported are cls, mean, max and lasttoken, one of them";
    if config.get("pooling_mode").is_some() {
        let name = config.text("pooling_mode", "")?;
        return MODES.iter().find(|m| m.1 == name).map(|m| m.2).ok_or_else(|| config.refuse("pooling_mode", why));
    }
    for other in ["pooling_mode_mean_sqrt_len_tokens", "pooling_mode_weightedmean_tokens"] {
        config.must_be_false(other, why)?;
    }
    let mut chosen = Vec::new();
    for (flag, _, rows) in MODES {
        if config.flag(flag, false)? {
            chosen.push((flag, rows));
        }
    }
    match chosen[..] {
        [(_, rows)] => Ok(rows),
        // What the library does when nothing is said.
        [] => Ok(HeadRows::Mean),
        [_, (flag, _), ..] => Err(config.refuse(flag, why)),
    }
}

/// A dense module: `activation(W x + b)`.
fn dense(config: &Config, path: &str, width: usize) -> Result<(Linear, Activation), Error> {
    if config.size("in_features", width, MAX_WIDTH)? != width {
        return Err(config.refuse("in_features", &format!("{width} numbers come in")));
    }
    let why = "supported are Identity, Tanh, ReLU, GELU and SiLU";
    let activation = match config.text("activation_function", "Tanh")?.rsplit('.').next() {
        Some("Identity") => Activation::Identity,
        Some("Tanh") => Activation::Tanh,
        Some("ReLU") => Activation::Relu,
        Some("GELU") => Activation::Gelu,
        Some("SiLU") => Activation::Silu,
        _ => return Err(config.refuse("activation_function", why)),
    };
    let with_bias = config.flag("bias", true)?;
    let weight: Matrix = tensor(&format!("{path}.linear.weight"));
    let bias = if with_bias { bias(&format!("{path}.linear.bias")) } else { None };
    Ok((Linear { weight, bias, inputs: width, outputs: config.size("out_features", width, MAX_WIDTH)? }, activation))
}
