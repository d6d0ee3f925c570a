//! What is economised where. The empty plan is the exact model.

use crate::Error;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// How weights are stored and multiplied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// 32-bit floats: the exact model.
    F32,
    /// bfloat16 weights and activations, f32 sums.
    Bf16,
    /// 8-bit integers: a scale per weight row and per token.
    Int8,
}

impl Precision {
    /// The name, as flags, requests and files have it.
    pub fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::Bf16 => "bf16",
            Precision::Int8 => "int8",
        }
    }
}

/// What is economised where; saved as `sparing.json` beside `config.json`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Precision of all linear maps, unless the caller asks for another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<Precision>,
    /// Blocks of an int8 model that stay in bf16, by layer: those that do not bear to be rounded to 8 bits.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub bf16: BTreeMap<usize, Blocks>,
    /// Fewer bits: what was done to the weights, and what int8 does to activations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantization: Option<Quantization>,
    /// Values computed as precisely as attention needs them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention: Option<crate::AttentionPlan>,
    /// What is left of layers that were pruned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elements: Option<crate::Elements>,
    /// What stands in the place of non-linear functions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub functions: Option<crate::Functions>,
}

/// Some of a layer's blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Blocks {
    /// Queries, keys, values and the projection behind attention.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub attention: bool,
    /// Feed-forward blocks and bottlenecks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ffn: bool,
}

/// Fewer bits.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quantization {
    /// Bits of the stored weights, by part; blocks that stay in bf16 may be floats.
    #[serde(default)]
    pub bits: Bits,
    /// Layers that differ.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub layers: BTreeMap<usize, LayerBits>,
    /// How int8 rounds what a linear map reads.
    #[serde(default)]
    pub activations: Activations,
}

/// Bits of the stored weights; `None`: floats. Norms and biases are floats always.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bits {
    /// Word, position and token-type tables, and the projection behind them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embeddings: Option<u32>,
    /// Queries, keys, values, the projection behind attention and networks in softmax's place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention: Option<u32>,
    /// Feed-forward blocks and bottlenecks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ffn: Option<u32>,
    /// Everything after the last layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<u32>,
}

/// Bits of the stored weights of a layer; `None`: as the plan has it for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerBits {
    /// Queries, keys, values, the projection behind attention and networks in softmax's place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention: Option<u32>,
    /// Feed-forward blocks and bottlenecks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ffn: Option<u32>,
}

impl Quantization {
    /// What is stored once this was rounded again, to so many bits: whatever has as few already stays as it is.
    pub fn rounded(self, bits: Bits, layers: &BTreeMap<usize, LayerBits>) -> Quantization {
        let least = |a: Option<u32>, b: Option<u32>| a.into_iter().chain(b).min();
        let all = Bits {
            embeddings: least(bits.embeddings, self.bits.embeddings),
            attention: least(bits.attention, self.bits.attention),
            ffn: least(bits.ffn, self.bits.ffn),
            head: least(bits.head, self.bits.head),
        };
        let of = |of: &BTreeMap<usize, LayerBits>, layer: usize, all: Bits| {
            let own = of.get(&layer).copied().unwrap_or_default();
            LayerBits { attention: own.attention.or(all.attention), ffn: own.ffn.or(all.ffn) }
        };
        let stored = |layer: &usize| {
            let (asked, came) = (of(layers, *layer, bits), of(&self.layers, *layer, self.bits));
            // What is as everywhere else need not be said.
            let attention = least(asked.attention, came.attention).filter(|bits| Some(*bits) != all.attention);
            let ffn = least(asked.ffn, came.ffn).filter(|bits| Some(*bits) != all.ffn);
            (*layer, LayerBits { attention, ffn })
        };
        let layers = layers.keys().chain(self.layers.keys()).map(stored);
        let layers = layers.filter(|(_, bits)| *bits != LayerBits::default()).collect();
        Quantization { bits: all, layers, activations: self.activations }
    }
}

impl Plan {
    /// Reads `sparing.json`. The error names the field that is wrong and says what is possible.
    pub fn from_file(text: &[u8]) -> Result<Plan, Error> {
        serde_json::from_slice(text).map_err(|e| {
            let why = wrong_field(text).unwrap_or(e.to_string());
            Error::new(format!("sparing.json: not a plan this version knows ({})", crate::weights::one_line(&why)))
        })
    }

    /// The contents of `sparing.json`; `None` where nothing is economised, and there is none.
    pub fn to_file(&self) -> Result<Option<Vec<u8>>, Error> {
        if *self == Plan::default() {
            return Ok(None);
        }
        let mut text = serde_json::to_vec_pretty(self).map_err(|e| Error::new(format!("sparing.json: {e}")))?;
        text.push(b'\n');
        Ok(Some(text))
    }
}

/// The first field that would be refused if it were alone, down to the second level: `functions.relu: expected "all" …`.
/// `None` where it is not a field that is wrong.
fn wrong_field(text: &[u8]) -> Option<String> {
    let plan: Map<String, Value> = serde_json::from_slice(text).ok()?;
    let refused = |plan: Value| serde_json::from_value::<Plan>(plan).err();
    plan.iter().find_map(|(part, value)| {
        let why = refused(json!({ part: value }))?;
        // A part without its other fields may be refused for that alone.
        let inner = value.as_object().into_iter().flatten().filter(|_| refused(json!({ part: {} })).is_none());
        let mut inner = inner.filter_map(|(field, value)| Some((field, refused(json!({ part: { field: value } }))?)));
        Some(inner.next().map_or(format!("{part}: {why}"), |(field, why)| format!("{part}.{field}: {why}")))
    })
}

impl Bits {
    /// The same for all parts.
    pub fn all(bits: u32) -> Bits {
        let bits = Some(bits);
        Bits { embeddings: bits, attention: bits, ffn: bits, head: bits }
    }
}

/// How int8 rounds what a linear map reads: to `2^bits` steps between a least and a largest number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Activations {
    /// Bits, 2 to 8.
    pub bits: u32,
    /// Least and largest number that a map reads, by the name of its weight; whatever lies beyond is cut off. Maps that
    /// are not named here have a range per token.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ranges: BTreeMap<String, [f32; 2]>,
}

impl Default for Activations {
    fn default() -> Self {
        Activations { bits: 8, ranges: BTreeMap::new() }
    }
}

impl Plan {
    /// Makes of a published architecture what the plan says of its layers.
    pub fn apply(&self, architecture: &mut crate::Architecture) -> Result<(), Error> {
        let layers = architecture.layers.len();
        if let Some((layer, _)) = self.bf16.last_key_value().filter(|(layer, _)| **layer >= layers) {
            return Err(Error::new(format!("bf16: there is no layer {layer}; the model has {layers}, counted from 0")));
        }
        self.elements.iter().try_for_each(|elements| elements.apply(architecture))?;
        self.functions.iter().try_for_each(|functions| functions.apply(architecture))
    }

    /// Whether the architecture is not the published one.
    pub(crate) fn rebuilds(&self) -> bool {
        self.elements.is_some() || self.functions.is_some()
    }

    /// Checks the numbers: a plan comes from a file.
    pub fn check(&self) -> Result<(), Error> {
        if !self.bf16.is_empty() && self.precision != Some(Precision::Int8) {
            return Err(Error::new(
                "sparing.json: bf16: blocks stay in bf16 where \"precision\" is \"int8\"; it is not",
            ));
        }
        if let Some(attention) = &self.attention {
            attention.check().map_err(|e| Error::new(format!("sparing.json: {e}")))?;
        }
        let Some(Quantization { bits, layers, activations }) = &self.quantization else { return Ok(()) };
        let parts = [bits.embeddings, bits.attention, bits.ffn, bits.head, Some(activations.bits)];
        let layers = layers.values().flat_map(|layer| [layer.attention, layer.ffn]);
        if let Some(bits) = parts.into_iter().chain(layers).flatten().find(|bits| !(2..=8).contains(bits)) {
            return Err(Error::new(format!("sparing.json: {bits} bits; from 2 to 8 are possible")));
        }
        let sound = |[least, most]: &[f32; 2]| least.is_finite() && most.is_finite() && least <= most;
        match activations.ranges.iter().find(|(_, range)| !sound(range)) {
            None => Ok(()),
            Some((name, [least, most])) => Err(Error::new(format!(
                "sparing.json: the range of \"{}\" is {least} to {most}; two numbers in order are needed",
                crate::weights::one_line(name)
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_few_bits_already_keeps_them() {
        let layer = |attention, ffn| LayerBits { attention, ffn };
        let came = Quantization {
            bits: Bits { embeddings: None, ..Bits::all(3) },
            layers: BTreeMap::from([(1, layer(Some(5), None)), (2, layer(None, Some(2)))]),
            ..Quantization::default()
        };
        let stored =
            came.rounded(Bits::all(4), &BTreeMap::from([(0, layer(None, Some(2))), (1, layer(Some(8), None))]));
        assert_eq!(stored.bits, Bits { embeddings: Some(4), ..Bits::all(3) });
        // Layer 1 came with 5 bits, and 8 were asked for; what layer 2 had it has.
        let layers = [(0, layer(None, Some(2))), (1, layer(Some(5), None)), (2, layer(None, Some(2)))];
        assert_eq!(stored.layers, BTreeMap::from(layers));
        let fresh = Quantization::default().rounded(Bits::all(8), &BTreeMap::new());
        assert_eq!((fresh.bits, fresh.layers.len()), (Bits::all(8), 0));
    }

    #[test]
    fn a_wrong_field_is_named_with_what_is_possible() {
        let relu = r#"functions.relu: expected "all" or a list of layers such as [0, 1]"#;
        let softmax = r#"expected an object such as {"tokens": 128"#;
        for (json, said) in [
            (r#"{"functions": {"relu": "none"}}"#, relu),
            (r#"{"functions": {"clip": true, "relu": true}}"#, relu),
            (r#"{"functions": {"relu": [0, -1]}}"#, relu),
            (r#"{"functions": {"clip": "yes"}}"#, r#"functions.clip: invalid type: string "yes", expected a boolean"#),
            (r#"{"functions": {"power_norm": 1}}"#, "functions.power_norm: invalid type: integer `1`, expected a bool"),
            (r#"{"functions": {"softmax": true}}"#, "functions.softmax: invalid type: boolean `true`"),
            (r#"{"functions": {"softmax": true}}"#, softmax),
            (r#"{"functions": {"softmax": {"shared": true}}}"#, "functions.softmax: missing field `tokens`"),
            (r#"{"functions": {"softmax": {"tokens": "8"}}}"#, "functions.softmax: invalid type: string"),
            (r#"{"functions": {"gelu": true}}"#, "functions.gelu: unknown field `gelu`, expected one of `softmax`"),
            (r#"{"functions": "relu"}"#, r#"functions: invalid type: string "relu", expected an object such as"#),
            (r#"{"precision": "int4"}"#, "precision: unknown variant `int4`, expected one of"),
            (r#"{"quantization": {"bits": {"ffn": "4"}}}"#, "quantization.bits: invalid type: string"),
            (r#"{"functions": "#, "EOF"),
            ("7", "invalid type: integer `7`"),
        ] {
            let message = Plan::from_file(json.as_bytes()).expect_err(json).to_string();
            assert!(message.starts_with("sparing.json: ") && message.contains(said), "{json}: {message}");
            assert!(!message.contains('\n'), "{message}");
        }
        assert_eq!(Plan::from_file(b"{}").unwrap(), Plan::default());
    }

    #[test]
    fn blocks_of_an_int8_model_may_stay_in_bf16() {
        let json = r#"{"precision":"int8","bf16":{"0":{"ffn":true},"1":{"attention":true,"ffn":true}}}"#;
        let plan = Plan::from_file(json.as_bytes()).unwrap();
        plan.check().unwrap();
        assert_eq!(plan.bf16[&0], Blocks { attention: false, ffn: true });
        assert_eq!(serde_json::to_string(&plan).unwrap(), json);
        let elsewhere = Plan { precision: Some(Precision::F32), ..plan.clone() };
        assert!(elsewhere.check().unwrap_err().to_string().contains("bf16: blocks stay in bf16 where"));
        let config = br#"{"model_type": "bert", "architectures": ["BertModel"], "vocab_size": 9, "hidden_size": 4,
            "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 6, "max_position_embeddings": 5}"#;
        let mut one = crate::Architecture::from_config(config, None, &|_| false).unwrap();
        assert!(plan.apply(&mut one).unwrap_err().to_string().contains("there is no layer 1; the model has 1"));
        let wrong = Plan::from_file(br#"{"bf16": {"0": {"head": true}}}"#).unwrap_err().to_string();
        assert!(wrong.contains("bf16.0: unknown field `head`"), "{wrong}");
    }

    #[test]
    fn layers_may_have_bits_of_their_own() {
        let json = r#"{"quantization":{"bits":{"ffn":6},"layers":{"0":{"attention":3}},"activations":{"bits":8}}}"#;
        let plan: Plan = serde_json::from_str(json).unwrap();
        plan.check().unwrap();
        assert_eq!(plan.quantization.as_ref().unwrap().layers[&0], LayerBits { attention: Some(3), ffn: None });
        assert_eq!(serde_json::to_string(&plan).unwrap(), json);
        // Plans from before layers could differ.
        let old: Plan = serde_json::from_str(r#"{"quantization": {"bits": {"ffn": 4}}}"#).unwrap();
        assert!(old.quantization.unwrap().layers.is_empty());
        let bad: Plan = serde_json::from_str(r#"{"quantization": {"layers": {"1": {"ffn": 9}}}}"#).unwrap();
        assert!(bad.check().unwrap_err().to_string().contains("9 bits"));
        assert!(serde_json::from_str::<Plan>(r#"{"quantization": {"layers": {"1": {"head": 4}}}}"#).is_err());
    }
}
