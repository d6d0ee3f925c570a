//! The part of a plan that says what stands in the place of non-linear functions (MA-BERT, Neo et al. 2023).

use crate::families::{bias, tensor};
use crate::weights::one_line;
use crate::{
    Activation, Architecture, AttentionPosition, Error, HeadChoice, HeadKind, Layer, Linear, Model, Norm, NormKind,
    OwnedTensor, Plan, Projections, ShareNetwork, Weights,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The longest text that a network in softmax's place may be made for.
const MOST_TOKENS: usize = 8192;

/// What stands in the place of non-linear functions.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = r#"an object such as {"relu": "all", "power_norm": true, "clip": true}"#)]
pub struct Functions {
    /// A network makes shares of scores, instead of softmax.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub softmax: Option<SoftmaxNetwork>,
    /// Feed-forward blocks have ReLU; where all have it, so does the head, unless it fills masks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relu: Option<Relu>,
    /// Layer norms of embeddings and layers are PowerNorm.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub power_norm: bool,
    /// The head clips where it had tanh.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clip: bool,
}

/// A network in softmax's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = r#"an object such as {"tokens": 128, "shared": false, "keys": 64}"#)]
pub struct SoftmaxNetwork {
    /// The longest text, in tokens; also the network's width, but with `keys`.
    pub tokens: usize,
    /// One network for all layers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
    /// Keys and values are projected to so many first; the network is then so wide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<usize>,
}

/// Where feed-forward blocks have ReLU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = r#"expected "all" or a list of layers such as [0, 1]"#)]
pub enum Relu {
    /// Everywhere, the head included: `"all"`.
    Everywhere(All),
    /// In these layers.
    In(Vec<usize>),
}

/// The word `all`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum All {
    /// It.
    All,
}

impl Relu {
    /// In all layers.
    pub const ALL: Relu = Relu::Everywhere(All::All);

    /// Whether this layer has it.
    fn has(&self, layer: usize) -> bool {
        match self {
            Relu::Everywhere(All::All) => true,
            Relu::In(layers) => layers.contains(&layer),
        }
    }
}

impl Functions {
    /// All replacements, for texts of so many tokens: nothing but matrix arithmetic and comparisons is left.
    pub fn all(softmax: SoftmaxNetwork) -> Functions {
        Functions { softmax: Some(softmax), relu: Some(Relu::ALL), power_norm: true, clip: true }
    }

    /// Puts them into an architecture. The error is one line that names layer and function.
    pub fn apply(&self, architecture: &mut Architecture) -> Result<(), Error> {
        let layers = architecture.layers.len();
        if let Some(Relu::In(list)) = &self.relu
            && let Some(layer) = list.iter().find(|layer| **layer >= layers)
        {
            return Err(Error::new(format!("functions: relu: there is no layer {layer}; the model has {layers}")));
        }
        if let Some(softmax) = &self.softmax {
            softmax.check(architecture)?;
            architecture.max_tokens =
                Some(architecture.max_tokens.map_or(softmax.tokens, |most| most.min(softmax.tokens)));
        }
        if self.power_norm {
            let own = architecture.layers.iter_mut().flat_map(norms);
            own.chain(&mut architecture.embeddings.norm).filter(|norm| norm.kind == NormKind::Layer).for_each(power);
        }
        for (number, layer) in architecture.layers.iter_mut().enumerate() {
            if let Some(softmax) = self.softmax.filter(|_| layer.attention.heads > 0) {
                layer.attention.network = Some(softmax.network(&layer.attention.query));
            }
            let relu = self.relu.as_ref().is_some_and(|relu| relu.has(number));
            layer.ffns.iter_mut().filter(|_| relu).for_each(|ffn| ffn.activation = Activation::Relu);
        }
        // A head that fills masks is for training alone and stays as published.
        let relu = self.relu == Some(Relu::ALL) && architecture.head.kind != HeadKind::MaskedLm;
        for stage in &mut architecture.head.stages {
            stage.activation = match stage.activation {
                Activation::Tanh if self.clip => Activation::Clip,
                Activation::Gelu | Activation::GeluTanh | Activation::Silu if relu => Activation::Relu,
                other => other,
            };
        }
        Ok(())
    }
}

impl Functions {
    /// Those that change nothing in this architecture, each with the reason, in one line.
    pub fn idle(&self, architecture: &Architecture) -> Result<Vec<&'static str>, Error> {
        let alone = Functions::default();
        let each = [
            (Functions { softmax: self.softmax, ..alone.clone() }, "softmax replaces nothing: no layer has attention"),
            (
                Functions { relu: self.relu.clone(), ..alone.clone() },
                "relu replaces nothing: no block here has anything but ReLU",
            ),
            (
                Functions { power_norm: self.power_norm, ..alone.clone() },
                "norm replaces nothing: there is no layer norm",
            ),
            (Functions { clip: self.clip, ..alone.clone() }, "clip replaces nothing: the head has no tanh"),
        ];
        let mut idle = Vec::new();
        for (functions, why) in each {
            let mut changed = architecture.clone();
            functions.apply(&mut changed)?;
            // A network makes a limit of the length even where there is nothing to put it.
            changed.max_tokens = architecture.max_tokens;
            idle.extend((functions != alone && changed == *architecture).then_some(why));
        }
        Ok(idle)
    }

    /// How many functions are to be replaced.
    pub fn count(&self) -> usize {
        [self.softmax.is_some(), self.relu.is_some(), self.power_norm, self.clip].iter().filter(|is| **is).count()
    }
}

impl Model {
    /// What [`Functions::idle`] says of the plan's functions, for a model that was read from a directory.
    pub fn idle_functions(&self) -> Result<Vec<&'static str>, Error> {
        let (Some(functions), Some(directory)) = (&self.plan.functions, &self.directory) else { return Ok(vec![]) };
        let head = HeadChoice::of(self.architecture.head.kind);
        let (mut published, ..) = Model::published(directory, Some(head))?;
        self.plan.elements.iter().try_for_each(|elements| elements.apply(&mut published))?;
        functions.idle(&published)
    }

    /// The model with functions replaced; `fill` gives the numbers of a tensor that is new, by name and shape.
    pub fn with_functions(
        &self,
        functions: &Functions,
        fill: &mut dyn FnMut(&str, &[usize]) -> Vec<f32>,
    ) -> Result<Model, Error> {
        let (mut architecture, mut plan) = (self.architecture.clone(), self.plan.clone());
        if plan.functions.is_some() {
            return Err(Error::new("functions of this model were replaced before; begin with the original"));
        }
        functions.apply(&mut architecture)?;
        plan.functions = Some(functions.clone());
        let mut tensors = self.weights.names().map(|name| self.weights.owned(name)).collect::<Result<Vec<_>, _>>()?;
        let new = architecture.replacements().into_iter().filter(|(name, _)| !self.weights.contains(name));
        tensors.extend(new.map(|(name, shape)| OwnedTensor::f32(&name, &shape, &fill(&name, &shape))));
        let weights = Weights::from_tensors(&tensors)?;
        architecture.check(&weights)?;
        let (tokenizer, directory) = (self.tokenizer.clone(), self.directory.clone());
        Ok(Model { architecture, plan, weights, tokenizer, directory, pruned: true, calibration: None })
    }
}

impl Architecture {
    /// Tensors that belong to what stands in the place of functions, with their shapes.
    pub fn replacements(&self) -> BTreeMap<String, Vec<usize>> {
        let mut found = BTreeMap::new();
        let own = self.layers.iter().flat_map(Layer::norms);
        for norm in own.chain(&self.embeddings.norm).filter(|norm| norm.kind == NormKind::Power) {
            found.insert(norm.running_phi(), vec![norm.width]);
        }
        for map in self.layers.iter().filter_map(|layer| layer.attention.network.as_ref()).flat_map(|n| n.maps()) {
            found.insert(map.weight.name(), vec![map.outputs, map.inputs]);
            found.extend(map.bias.iter().map(|bias| (bias.name.clone(), vec![map.outputs])));
        }
        found
    }
}

/// How the names of tensors end that nothing but a replaced function has.
const MARKS: [&str; 3] = ["running_phi", "softmax.hidden.weight", "softmax.output.weight"];

impl Plan {
    /// Refuses weights that were trained with functions replaced where the plan replaces none: the published functions would make
    /// nothing of them.
    pub(crate) fn check_replaced(&self, architecture: &Architecture, weights: &Weights) -> Result<(), Error> {
        let named = architecture.replacements();
        let ends = |name: &str, mark: &str| {
            name.strip_suffix(mark).is_some_and(|before| before.is_empty() || before.ends_with('.'))
        };
        // Removed attention blocks have no network any more, and files may hold it still.
        let networks = self.functions.as_ref().is_some_and(|functions| functions.softmax.is_some());
        let marks = if networks { &MARKS[..1] } else { &MARKS[..] };
        let unnamed = |name: &&str| marks.iter().any(|mark| ends(name, mark)) && !named.contains_key(*name);
        match weights.names().find(unnamed) {
            None => Ok(()),
            Some(name) => Err(Error::new(format!(
                "tensor \"{}\" belongs to a function that was replaced, and sparing.json does not say so under \"functions\"; \
                 put the sparing.json that was written with these weights beside them",
                one_line(name)
            ))),
        }
    }
}

impl Layer {
    /// Its norms.
    pub fn norms(&self) -> impl Iterator<Item = &Norm> {
        let bottleneck = self.bottleneck.iter().flat_map(|b| [Some(&b.input), b.shared.as_ref(), Some(&b.output)]);
        let blocks = self.ffns.iter().map(|ffn| &ffn.norm);
        blocks.chain([&self.attention_norm]).chain(bottleneck.flatten().map(|map| &map.norm))
    }
}

impl fmt::Display for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some(SoftmaxNetwork { tokens, shared, keys }) = self.softmax {
            let shared = if shared { ", one for all layers" } else { "" };
            let keys = keys.map_or(String::new(), |keys| format!(", {keys} keys"));
            parts.push(format!("softmax by a network ({tokens} tokens{keys}{shared})"));
        }
        parts.extend(self.relu.as_ref().map(|relu| match relu {
            Relu::Everywhere(All::All) => "GELU by ReLU".to_string(),
            Relu::In(layers) => format!("GELU by ReLU in layers {layers:?}"),
        }));
        parts.extend(self.power_norm.then(|| "layer norm by PowerNorm".to_string()));
        parts.extend(self.clip.then(|| "tanh by clipping".to_string()));
        f.write_str(&if parts.is_empty() { "nothing".to_string() } else { parts.join(", ") })
    }
}

/// PowerNorm's epsilon, whatever the layer norm's was: a channel that is always zero must not divide by it.
fn power(norm: &mut Norm) {
    (norm.kind, norm.eps) = (NormKind::Power, 1e-12);
}

fn norms(layer: &mut Layer) -> impl Iterator<Item = &mut Norm> {
    let bottleneck = layer.bottleneck.iter_mut().flat_map(|b| {
        [Some(&mut b.input), b.shared.as_mut(), Some(&mut b.output)].into_iter().flatten().map(|map| &mut map.norm)
    });
    let blocks = layer.ffns.iter_mut().map(|ffn| &mut ffn.norm);
    blocks.chain([&mut layer.attention_norm]).chain(bottleneck)
}

impl SoftmaxNetwork {
    /// Inputs and outputs of the network.
    pub fn width(&self) -> usize {
        self.keys.unwrap_or(self.tokens)
    }

    fn check(&self, architecture: &Architecture) -> Result<(), Error> {
        let wrong = |what: String| Err(Error::new(format!("functions: softmax: {what}")));
        let SoftmaxNetwork { tokens, keys, .. } = *self;
        if !(1..=MOST_TOKENS).contains(&tokens) {
            return wrong(format!("a network for {tokens} tokens; from 1 to {MOST_TOKENS} are possible"));
        }
        if let Some(keys) = keys.filter(|keys| !(1..=tokens).contains(keys)) {
            return wrong(format!("{keys} keys for {tokens} tokens; from 1 to {tokens} are possible"));
        }
        if let Some(most) = architecture.longest_input().filter(|most| *most < tokens) {
            return wrong(format!("a network for {tokens} tokens, but the model takes {most} at most"));
        }
        for (number, layer) in architecture.layers.iter().enumerate() {
            let a = &layer.attention;
            let why = match &a.position {
                _ if a.causal => "sees earlier tokens only",
                _ if a.window.is_some() => "sees a window only",
                AttentionPosition::None => continue,
                _ => "has positions in its scores",
            };
            return wrong(format!("attention of layer {number} {why}: a network cannot take softmax's place there"));
        }
        Ok(())
    }

    /// The network of a layer with this query projection, whose name says where the layer's tensors are.
    fn network(&self, query: &Linear) -> ShareNetwork {
        let name = query.weight.name();
        let at = name.rsplitn(3, '.').nth(2).unwrap_or_default();
        let map = |part: &str, shared: bool, inputs: usize, outputs: usize, biased: bool| {
            let name = if shared { format!("softmax.{part}") } else { format!("{at}.softmax.{part}") };
            let bias = biased.then(|| bias(&format!("{name}.bias"))).flatten();
            Linear { weight: tensor(&format!("{name}.weight")), bias, inputs, outputs }
        };
        let (width, tokens) = (self.width(), self.tokens);
        ShareNetwork {
            tokens,
            hidden: map("hidden", self.shared, width, width, true),
            output: map("output", self.shared, width, width, true),
            projections: self.keys.map(|keys| Projections {
                keys: map("keys", false, tokens, keys, false),
                values: map("values", false, tokens, keys, false),
            }),
        }
    }
}
