//! Which mechanism, as data.

use super::{
    Attention, Axial, BigBird, Compressive, Etc, Fixed, Full, Graded, Image, Input, Linear, Linformer, Local,
    LongShort, Longformer, MemoryCompressed, MonteCarlo, Nystrom, Performer, Reformer, Routing, Set, SignMatching,
    Sinkhorn, Sizes, SoftmaxNetwork, Strided, Synthesizer, TransformerXl,
};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};
use sparing_model::Error;

/// Of a layer: 8 GiB.
const MOST_NUMBERS: u128 = 1 << 31;

/// A mechanism with its knobs: `{"kind": "local", "block": 64}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[allow(missing_docs, reason = "each is documented at its type")]
pub enum Kind {
    Full(Full),
    Local(Local),
    Strided(Strided),
    Fixed(Fixed),
    Axial(Axial),
    Image(Image),
    Longformer(Longformer),
    BigBird(BigBird),
    Etc(Etc),
    Reformer(Reformer),
    Routing(Routing),
    Sinkhorn(Sinkhorn),
    Set(Set),
    MemoryCompressed(MemoryCompressed),
    Linformer(Linformer),
    SoftmaxNetwork(SoftmaxNetwork),
    Performer(Performer),
    Linear(Linear),
    Nystrom(Nystrom),
    Synthesizer(Synthesizer),
    LongShort(LongShort),
    TransformerXl(TransformerXl),
    Compressive(Compressive),
    SignMatching(SignMatching),
    MonteCarlo(MonteCarlo),
    Graded(Graded),
}

impl Kind {
    /// The mechanism.
    pub fn mechanism(&self) -> &dyn Attention {
        match self {
            Kind::Full(kind) => kind,
            Kind::Local(kind) => kind,
            Kind::Strided(kind) => kind,
            Kind::Fixed(kind) => kind,
            Kind::Axial(kind) => kind,
            Kind::Image(kind) => kind,
            Kind::Longformer(kind) => kind,
            Kind::BigBird(kind) => kind,
            Kind::Etc(kind) => kind,
            Kind::Reformer(kind) => kind,
            Kind::Routing(kind) => kind,
            Kind::Sinkhorn(kind) => kind,
            Kind::Set(kind) => kind,
            Kind::MemoryCompressed(kind) => kind,
            Kind::Linformer(kind) => kind,
            Kind::SoftmaxNetwork(kind) => kind,
            Kind::Performer(kind) => kind,
            Kind::Linear(kind) => kind,
            Kind::Nystrom(kind) => kind,
            Kind::Synthesizer(kind) => kind,
            Kind::LongShort(kind) => kind,
            Kind::TransformerXl(kind) => kind,
            Kind::Compressive(kind) => kind,
            Kind::SignMatching(kind) => kind,
            Kind::MonteCarlo(kind) => kind,
            Kind::Graded(kind) => kind,
        }
    }

    /// Refuses knobs that make no sense, or whose tensors no machine holds.
    pub fn check(&self, sizes: &Sizes) -> Result<(), Error> {
        let mechanism = self.mechanism();
        mechanism.check()?;
        let numbers = |shape: &[usize]| shape.iter().fold(1u128, |all, size| all.saturating_mul(*size as u128));
        let all: u128 = mechanism.tensors(sizes).iter().map(|fresh| numbers(&fresh.shape)).sum();
        if all > MOST_NUMBERS {
            return Err(Error::new(format!(
                "attention: the tensors of a layer have {all} numbers, more than {MOST_NUMBERS}; take smaller knobs"
            )));
        }
        Ok(())
    }

    /// Attends, once knobs and input are known to fit: `[batch * heads, length, width / heads]`.
    pub fn attend(&self, input: &Input<'_>) -> Result<Tensor<3>, Error> {
        let mechanism = self.mechanism();
        mechanism.check()?;
        if input.causal && !mechanism.causal() {
            return Err(Error::new("this attention has no causal form; take another, or leave causal out"));
        }
        mechanism.attend(input)
    }
}

/// The mechanisms that come with the program by name, with the knobs of the arena or of their papers.
pub fn catalogue() -> Result<Vec<(String, Kind)>, Error> {
    let text = include_str!("../../configs/attention.json");
    let all: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(text).map_err(|e| Error::new(format!("attention.json: {e}")))?;
    let kind = |(name, value): (String, serde_json::Value)| match serde_json::from_value(value) {
        Ok(kind) => Ok((name, kind)),
        Err(e) => Err(Error::new(format!("attention.json: {name}: {e}"))),
    };
    all.into_iter().map(kind).collect()
}
