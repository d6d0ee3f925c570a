//! What can be economised, in steps: each step saves something and changes something.

use crate::running::{Prices, Running, budgeted, choosing, dropping, merging, reconciled};
use crate::search::Search;
use crate::{Economy, Kind, Left, Recipe};
use sparing_model::{Architecture, Error, Precision};
use sparing_quantize::{Part, targets};
use sparing_report::Focus;
use std::collections::{BTreeMap, BTreeSet};

/// Measures of attention below which tokens leave; see [`sparing_model::Tokens::drop`].
const CUTS: [f32; 8] = [0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0];
/// Shares of the tokens that are merged; see [`sparing_model::Tokens::merge`].
const SHARES: [f32; 5] = [0.05, 0.1, 0.15, 0.2, 0.3];
/// How coarse values may be; see [`sparing_model::Mca::alpha`].
const ALPHAS: [f32; 4] = [0.1, 0.2, 0.4, 0.8];
/// Layers, from the first on, that tokens may leave or be merged in: in more there is nothing left to leave.
const LAYERS: usize = 8;
/// Bits to store weights in.
const BITS: [u32; 5] = [8, 6, 5, 4, 3];

/// One way to economise, in steps.
pub(crate) struct Axis {
    pub name: String,
    pub what: What,
    /// From the mildest to the harshest.
    pub steps: Vec<Step>,
}

#[derive(Clone, Copy)]
pub(crate) enum What {
    Site(usize),
    /// Tokens that leave in a layer.
    Tokens(usize),
    /// Tokens that are merged in a layer.
    Merge(usize),
    /// Keys that a layer chooses.
    Keys(usize),
    Values,
    /// A site that would stay in bf16 is multiplied in int8.
    Int8(usize),
    /// Bits of a part, or of a layer's.
    Bits(Part, Option<usize>),
}

#[derive(Clone, Copy)]
pub(crate) struct Step {
    /// Units left, a cut's, a share's or an alpha's number, or bits.
    pub to: usize,
    /// Share of the whole time (or bytes) that it saves, from the axis's beginning.
    pub saved: f64,
    /// How much it changes the answers.
    pub change: f64,
}

impl Step {
    fn new(to: usize, saved: f64) -> Step {
        Step { to, saved, change: f64::INFINITY }
    }
}

impl Axis {
    fn new(name: impl Into<String>, what: What, steps: Vec<Step>) -> Axis {
        Axis { name: name.into(), what, steps }
    }

    /// Whether what a step saves is known only once it was tried.
    pub fn is_counted(&self) -> bool {
        matches!(self.what, What::Tokens(_) | What::Merge(_) | What::Values)
    }

    /// What a step further saves and changes.
    pub fn further(&self, taken: usize) -> Option<(f64, f64)> {
        let next = self.steps.get(taken)?;
        let now = taken.checked_sub(1).map_or((0.0, 0.0), |step| (self.steps[step].saved, self.steps[step].change));
        Some((next.saved - now.0, (next.change - now.1).max(1e-9)))
    }

    /// How the change grows with the steps, as far as that can be foreseen.
    pub fn foreseen(&self, search: &Search<'_>) -> Vec<f64> {
        let of = |step: &Step| match self.what {
            What::Site(site) => {
                let rung = search.shop.ladder(site).iter().find(|rung| rung.kept.len() == step.to);
                rung.map_or(1.0, |rung| rung.error).max(1e-12)
            }
            What::Tokens(_) => f64::from(CUTS[step.to]).powi(2),
            What::Merge(_) => f64::from(SHARES[step.to]).powi(2),
            What::Values => f64::from(ALPHAS[step.to]).powi(2),
            What::Keys(_) | What::Int8(_) => 1.0,
            // A bit less is four times the squared error.
            What::Bits(..) => 0.25f64.powi(step.to as i32),
        };
        self.steps.iter().map(of).collect()
    }

    /// How far along a step is, for what is counted: between nothing and the last.
    pub fn along(&self, step: usize) -> f64 {
        match self.what {
            What::Tokens(_) => f64::from(CUTS[self.steps[step].to]),
            What::Merge(_) => f64::from(SHARES[self.steps[step].to]),
            What::Values => f64::from(ALPHAS[self.steps[step].to]),
            _ => (step + 1) as f64,
        }
    }
}

/// What may be economised, with what each step saves as far as that is known.
pub(crate) fn axes(search: &Search<'_>, begin: &Recipe) -> Result<Vec<Axis>, Error> {
    let settings = search.settings;
    let shares = shares(search, begin)?;
    let mut axes = Vec::new();
    for (number, site) in search.shop.anatomy.sites.iter().enumerate() {
        let economy = if site.kind == Kind::Attention { Economy::Heads } else { Economy::Width };
        let all = site.units.len();
        let may = |left: usize| if left == 0 { settings.may(Economy::Blocks) } else { settings.may(economy) };
        let rungs = search.shop.ladder(number).iter().map(|rung| rung.kept.len());
        let step = |left: usize| Step::new(left, shares[number] * (all - left) as f64 / all as f64);
        let steps = rungs.filter(|left| *left < all && may(*left)).map(step).collect();
        axes.push(Axis::new(site.name(), What::Site(number), steps));
    }
    if settings.focus == Focus::Speed {
        axes.extend(running(&search.prices, search.shop.model.architecture.layers.len()));
        axes.extend(in_int8(search, begin, &shares));
    }
    if settings.may(Economy::Bits) && settings.focus == Focus::Size {
        axes.extend(bit_axes(search, begin)?);
    }
    Ok(axes)
}

/// What is chosen while a model of so many layers runs, where the clock says that it can pay.
fn running(prices: &Prices, layers: usize) -> Vec<Axis> {
    let steps = |count: usize| (0..count).map(|number| Step::new(number, 0.0)).collect::<Vec<_>>();
    let mut axes = Vec::new();
    // The last layer never chooses.
    let choosing = 0..layers.saturating_sub(1);
    if prices.pays(Running::Tokens) {
        let axis = |layer| Axis::new(format!("tokens in layer {layer}"), What::Tokens(layer), steps(CUTS.len()));
        axes.extend(choosing.clone().take(LAYERS).map(axis));
    }
    if prices.pays(Running::Merge) {
        let axis =
            |layer| Axis::new(format!("merged tokens in layer {layer}"), What::Merge(layer), steps(SHARES.len()));
        axes.extend(choosing.clone().take(LAYERS).map(axis));
    }
    if prices.pays(Running::Keys) {
        let saved = prices.keys();
        let axis = |layer| Axis::new(format!("keys in layer {layer}"), What::Keys(layer), vec![Step::new(0, saved)]);
        axes.extend(choosing.map(axis));
    }
    if prices.pays(Running::Values) {
        axes.push(Axis::new("values", What::Values, steps(ALPHAS.len())));
    }
    axes
}

/// Sites that stay in bf16, one after the other in int8: what is in bf16 takes that much longer.
fn in_int8(search: &Search<'_>, begin: &Recipe, shares: &[f64]) -> Vec<Axis> {
    let [fast, slow] = [Precision::Int8, Precision::Bf16].map(|precision| search.costs.precision(precision));
    let axis = |site: &usize| {
        let steps = vec![Step::new(0, shares[*site] * (1.0 - slow / fast))];
        Axis::new(format!("int8 in {}", search.shop.anatomy.sites[*site].name()), What::Int8(*site), steps)
    };
    begin.bf16.iter().map(axis).collect()
}

/// Fewer bits, for the embeddings, the head, and every layer's attention and feed-forward blocks.
fn bit_axes(search: &Search<'_>, begin: &Recipe) -> Result<Vec<Axis>, Error> {
    let model = search.shop.make(begin)?;
    let whole = (model.weights.size_in_bytes() as f64).max(1.0);
    // Weights, and bytes they take now.
    let mut parts: BTreeMap<(Part, Option<usize>), (f64, f64)> = BTreeMap::new();
    for target in targets(&model.architecture) {
        let tensor = model.weights.tensor(&target.name)?;
        let sums = parts.entry((target.part, target.layer)).or_default();
        *sums = (sums.0 + tensor.len() as f64, sums.1 + tensor.bytes().len() as f64);
    }
    let axis = |((part, layer), (weights, bytes)): ((Part, Option<usize>), (f64, f64))| {
        let name = match layer {
            Some(layer) => {
                let kind = if part == Part::Attention { Kind::Attention } else { Kind::Ffn };
                let sharing = (0..model.architecture.layers.len())
                    .filter(|other| search.shop.anatomy.first(kind, *other) == layer)
                    .count();
                match sharing {
                    ..=1 => format!("bits of {} in layer {layer}", part.name()),
                    _ => format!("bits of {} in {sharing} layers that share it", part.name()),
                }
            }
            None => format!("bits of {}", part.name()),
        };
        let saved = |bits: u32| (bytes - weights * f64::from(bits) / 8.0) / whole;
        let steps = BITS.into_iter().filter(|bits| f64::from(*bits) < 7.9 * bytes / weights);
        Axis::new(name, What::Bits(part, layer), steps.map(|bits| Step::new(bits as usize, saved(bits))).collect())
    };
    Ok(parts.into_iter().map(axis).collect())
}

/// Share of the time (or bytes) that goes into the units of each site.
pub(crate) fn shares(search: &Search<'_>, begin: &Recipe) -> Result<Vec<f64>, Error> {
    let sites = &search.shop.anatomy.sites;
    if search.settings.focus == Focus::Speed {
        return Ok((0..sites.len()).map(|site| search.costs.share(site)).collect());
    }
    let whole = search.shop.make(begin)?.weights.size_in_bytes() as f64;
    let stored = begin.bits.or(search.shop.model.plan.quantization.as_ref().map(|came| came.bits));
    let bytes = |of: &crate::Site| {
        let bits = stored.and_then(|b| if of.kind == Kind::Attention { b.attention } else { b.ffn });
        let each = bits.map_or(4.0, |bits| f64::from(bits) / 8.0);
        (of.units.len() * of.unit_weights) as f64 * each / whole
    };
    Ok(sites.iter().map(bytes).collect())
}

/// The recipe after so many steps on each axis.
pub(crate) fn recipe(search: &Search<'_>, begin: &Recipe, axes: &[Axis], place: &[usize]) -> Recipe {
    taken(&search.shop.model.architecture, begin, axes, place)
}

fn taken(architecture: &Architecture, begin: &Recipe, axes: &[Axis], place: &[usize]) -> Recipe {
    let mut recipe = begin.clone();
    let mut attention = recipe.attention.take().unwrap_or_default();
    for (axis, taken) in axes.iter().zip(place) {
        let Some(step) = taken.checked_sub(1).and_then(|step| axis.steps.get(step)) else { continue };
        match axis.what {
            What::Site(site) => _ = recipe.left.insert(site, Left::Best(step.to)),
            What::Tokens(layer) => attention = dropping(attention, layer, CUTS[step.to]),
            What::Merge(layer) => attention = merging(attention, layer, SHARES[step.to]),
            What::Keys(layer) => attention = choosing(attention, layer, architecture.layers.len()),
            What::Values => attention = budgeted(attention, ALPHAS[step.to]),
            What::Int8(site) => _ = recipe.bf16.remove(&site),
            What::Bits(part, layer) => recipe.set_bits(part, layer, step.to as u32),
        }
    }
    // Where all that could be in int8 stays in bf16, nothing is in int8.
    if !begin.bf16.is_empty() && recipe.bf16 == begin.bf16 {
        (recipe.precision, recipe.bf16) = (Some(Precision::Bf16), BTreeSet::new());
    }
    recipe.attention = Some(reconciled(attention, architecture)).filter(|attention| !attention.is_exact());
    recipe
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn blocks_go_over_to_int8_one_by_one() {
        let model = testing::model();
        let bf16: BTreeSet<usize> = (0..4).collect();
        let begin = Recipe { precision: Some(Precision::Int8), bf16, ..Recipe::default() };
        let axes: Vec<Axis> = (0..4).map(|site| Axis::new("", What::Int8(site), vec![Step::new(0, 0.1)])).collect();
        let at = |place: [usize; 4]| {
            let Recipe { precision, bf16, .. } = taken(&model.architecture, &begin, &axes, &place);
            (precision, bf16.into_iter().collect::<Vec<_>>())
        };
        assert_eq!(at([0; 4]), (Some(Precision::Bf16), vec![]));
        assert_eq!(at([0, 1, 0, 1]), (Some(Precision::Int8), vec![0, 2]));
        assert_eq!(at([1; 4]), (Some(Precision::Int8), vec![]));
    }

    #[test]
    fn tokens_are_merged_layer_by_layer_beside_what_else_is_chosen() {
        let axes = running(&Prices::default(), 4);
        let merged: Vec<&Axis> = axes.iter().filter(|axis| matches!(axis.what, What::Merge(_))).collect();
        // The last layer never chooses.
        assert_eq!(
            merged.iter().map(|axis| &axis.name[..]).collect::<Vec<_>>(),
            ["merged tokens in layer 0", "merged tokens in layer 1", "merged tokens in layer 2",]
        );
        assert!(merged.iter().all(|axis| axis.is_counted() && axis.steps.len() == SHARES.len()));

        let model = testing::model();
        let axis = |what| Axis::new("", what, (0..3).map(|to| Step::new(to, 0.0)).collect());
        let attention = |whats: &[What]| {
            let axes: Vec<Axis> = whats.iter().copied().map(axis).collect();
            let recipe = taken(&model.architecture, &Recipe::default(), &axes, &vec![2; axes.len()]);
            let attention = recipe.attention.unwrap();
            attention.check_for(&model.architecture).unwrap();
            attention.to_string()
        };
        assert_eq!(attention(&[What::Merge(0)]), "exact,merge=0,merge0=0.1");
        assert_eq!(attention(&[What::Tokens(0), What::Merge(0)]), "exact,drop=0,drop0=0.3,merge=0,merge0=0.1");
        // It goes by keys and not by probabilities: chosen keys and values within budgets can be in the same layer.
        let keys = attention(&[What::Merge(0), What::Keys(0)]);
        assert!(keys.contains("merge0=0.1") && keys.contains("keys0=auto"), "{keys}");
        let values = attention(&[What::Merge(0), What::Values]);
        assert!(values.starts_with("graded:0.2") && values.contains("merge0=0.1"), "{values}");
    }
}
