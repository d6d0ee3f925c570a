//! What a search came to: the best candidate, the frontier, and what became of every part.

use crate::contest::CLEARLY;
use crate::running::unmerged;
use crate::search::{Settings, Tried};
use crate::{Anatomy, Kind, Left, Recipe, Strategy};
use sparing_model::{AttentionPlan, LayerKeys, LayerTokens, Model, Plan, Precision, Tokens};
use sparing_report::Focus;

pub use crate::map::element_map;

/// The best of what was tried within a budget, by what matters most. `None`: nothing that was tried is within it.
pub fn best(tried: &[Tried], focus: Focus, budget: f64) -> Option<usize> {
    let worth = |t: &Tried| match focus {
        Focus::Speed => t.foreseen,
        Focus::Size => -(t.bytes as f64),
        Focus::Accuracy => -t.verdict.loss,
    };
    let candidates = || tried.iter().enumerate().filter(|(_, t)| may_be_chosen(t, focus, budget));
    let (best, most) = candidates().map(|(number, t)| (number, worth(t))).max_by(|a, b| a.1.total_cmp(&b.1))?;
    if focus != Focus::Speed {
        return Some(best);
    }
    // As fast as the clock can tell: the one that has lost least.
    let as_fast = candidates().filter(|(_, t)| t.foreseen * CLEARLY >= most);
    let least = as_fast
        .min_by(|(_, a), (_, b)| a.verdict.lost.total_cmp(&b.verdict.lost).then(b.foreseen.total_cmp(&a.foreseen)));
    least.map(|(number, _)| number)
}

/// Whether a candidate may be the one that is saved: it economises, pays, is fair, and good enough.
pub fn may_be_chosen(tried: &Tried, focus: Focus, budget: f64) -> bool {
    tried.pays && tried.fair && good_enough(tried, focus, budget) && tried.recipe != Recipe::default()
}

/// Whether answers on searched rows are good enough: within the budget and, where the score matters most, no worse than they
/// were.
pub fn good_enough(tried: &Tried, focus: Focus, budget: f64) -> bool {
    tried.within(budget) && (focus != Focus::Accuracy || tried.verdict.lost <= 0.0)
}

/// The share of the score on searched rows that may be lost.
pub fn most_lost(focus: Focus, budget: f64) -> f64 {
    if focus == Focus::Accuracy { 0.0 } else { budget }
}

/// Which of (score, speed, bytes) triples are on the frontier: nothing else is as good in all and better in one. Scores and
/// speeds are better when larger, bytes when smaller. What has no score (a correlation of answers that are all the same) is beaten by
/// nothing, and is on no frontier.
pub fn frontier(points: &[(f64, f64, u64)]) -> Vec<bool> {
    let beats = |a: &(f64, f64, u64), b: &(f64, f64, u64)| {
        a.0 >= b.0 && a.1 >= b.1 && a.2 <= b.2 && (a.0 > b.0 || a.1 > b.1 || a.2 < b.2)
    };
    let known = |p: &(f64, f64, u64)| p.0.is_finite() && p.1.is_finite();
    points.iter().map(|p| known(p) && !points.iter().any(|other| known(other) && beats(other, p))).collect()
}

/// What a model that was made of another one has left of it, as a recipe for that other one. Which neurons are left is not
/// known any more, only how many.
pub fn recipe_of(model: &Model, anatomy: &Anatomy) -> Recipe {
    let Plan { precision, bf16, attention, quantization, .. } = &model.plan;
    let (attention, bf16) = (attention.clone(), anatomy.sites_in(bf16));
    let mut recipe = Recipe { precision: *precision, bf16, attention, ..Recipe::default() };
    if let Some(quantization) = quantization {
        (recipe.bits, recipe.layer_bits) = (Some(quantization.bits), quantization.layers.clone());
    }
    for (number, site) in anatomy.sites.iter().enumerate() {
        let layer = &model.architecture.layers[site.layers[0]];
        let left = match site.kind {
            Kind::Attention => Left::Only(layer.attention.numbers()),
            Kind::Ffn => Left::Count(layer.ffns[site.block].up.outputs),
        };
        if left.count(site.units.len()) < site.units.len() {
            recipe.left.insert(number, left);
        }
    }
    recipe
}

/// With which end of the network a search begins, if it goes by layers.
pub fn order(settings: &Settings) -> &'static str {
    match settings.strategy {
        Strategy::Cost | Strategy::Random => "",
        Strategy::TopLayers => "from the top",
        _ if settings.bottom_first => "from the bottom",
        _ => "from the top",
    }
}

/// A recipe in words.
pub fn words(recipe: &Recipe, anatomy: &Anatomy) -> String {
    let mut parts = Vec::new();
    for (kind, one) in [(Kind::Attention, "heads"), (Kind::Ffn, "neurons")] {
        let (mut left, mut all, mut gone) = (0, 0, 0);
        for number in anatomy.of_kind(kind) {
            let there = anatomy.sites[number].units.len();
            let rest = recipe.left.get(&number).map_or(there, |left| left.count(there));
            (left, all, gone) = (left + rest, all + there, gone + usize::from(rest == 0));
        }
        if left < all {
            parts.push(format!("{left} of {all} {one}"));
        }
        if gone > 0 {
            let blocks = if kind == Kind::Attention { "attention" } else { "feed-forward" };
            parts.push(format!("{gone} {blocks} block{} removed", if gone == 1 { "" } else { "s" }));
        }
    }
    parts.extend(recipe.attention.iter().flat_map(|attention| chosen(attention, anatomy.layers)));
    match recipe.precision {
        Some(Precision::Int8) if recipe.bf16.is_empty() => parts.push("int8".into()),
        Some(Precision::Int8) => {
            parts.push(format!("int8, but {} of {} blocks in bf16", recipe.bf16.len(), anatomy.sites.len()))
        }
        Some(Precision::Bf16) => parts.push("bf16".into()),
        _ => {}
    }
    if let Some(bits) = recipe.bits {
        let part = |bits: Option<u32>| bits.map_or("-".to_string(), |bits| bits.to_string());
        let [e, a, f] = [bits.embeddings, bits.attention, bits.ffn].map(part);
        if recipe.layer_bits.is_empty() {
            parts.push(format!("weights in {e}/{a}/{f} bits (embeddings/attention/feed-forward)"));
        } else {
            let of = |kind: Kind, else_: &str| {
                let of = |layer| {
                    let bits = layer_bits(recipe, anatomy.first(kind, layer), kind);
                    bits.map_or(else_.to_string(), |bits| bits.to_string())
                };
                (0..anatomy.layers).map(of).collect::<Vec<_>>().join(" ")
            };
            let (attention, ffn) = (of(Kind::Attention, &a), of(Kind::Ffn, &f));
            parts.push(format!("embeddings in {e} bits, attention by layer in {attention}, feed-forward in {ffn}"));
        }
    }
    if parts.is_empty() { "the model as it came".into() } else { parts.join(", ") }
}

/// Bits of a layer's block by a recipe.
pub(crate) fn layer_bits(recipe: &Recipe, layer: usize, kind: Kind) -> Option<u32> {
    let own = recipe.layer_bits.get(&layer);
    match kind {
        Kind::Attention => own.and_then(|own| own.attention).or(recipe.bits?.attention),
        Kind::Ffn => own.and_then(|own| own.ffn).or(recipe.bits?.ffn),
    }
}

/// What is chosen while a model of so many layers runs, in words.
fn chosen(attention: &AttentionPlan, layers: usize) -> Vec<String> {
    let mut parts = Vec::new();
    let list = |layers: Vec<String>| format!("layer{} {}", if layers.len() == 1 { "" } else { "s" }, layers.join(", "));
    if let Some(tokens) = &attention.tokens {
        let mut tell = |what: &str, of: &dyn Fn(LayerTokens) -> Option<String>| {
            let told: Vec<String> =
                (0..layers).filter_map(|layer| Some(format!("{layer} ({})", of(tokens.of(layer))?))).collect();
            parts.extend((!told.is_empty()).then(|| format!("{what} {}", list(told))));
        };
        tell("tokens leave in", &|of| (of.drop > 0.0).then(|| format!("below {} of an even share", of.drop)));
        tell("some tokens are kept in", &|of| of.keeps_some().then(|| of.keep.to_string()));
        tell("like tokens are merged in", &|of| (of.merge > 0.0).then(|| format!("{} of them", of.merge)));
        tell("tokens skip feed-forward in", &|of| (of.skip > 0.0).then(|| format!("below {}", of.skip)));
    }
    if let Some(keys) = &attention.keys {
        let chooses = |layer: &usize| !matches!(keys.layers.get(layer), Some(LayerKeys::Exact));
        let chosen = (0..layers).filter(chooses).map(|layer| layer.to_string());
        parts.push(format!("chosen keys in {}", list(chosen.collect())));
    }
    if let Some(mca) = &attention.mca {
        parts.push(format!("{} values, alpha {}", mca.sampler.name(), mca.alpha));
    }
    parts
}

/// The recipe piece by piece, in the order techniques are counted: name and recipe up to and with it.
pub fn techniques(recipe: &Recipe, anatomy: &Anatomy) -> Vec<(&'static str, Recipe)> {
    let mut now = Recipe::default();
    let mut steps = Vec::new();
    let mut step = |name: &'static str, next: Recipe| {
        if next != now {
            steps.push((name, next.clone()));
            now = next;
        }
    };
    let mut next = Recipe { precision: recipe.precision, bf16: recipe.bf16.clone(), ..Recipe::default() };
    step("precision", next.clone());
    (next.bits, next.layer_bits) = (recipe.bits, recipe.layer_bits.clone());
    step("fewer bits", next.clone());
    for (name, kind, blocks) in [
        ("removed blocks", None, true),
        ("removed heads", Some(Kind::Attention), false),
        ("narrower feed-forward", Some(Kind::Ffn), false),
    ] {
        for (number, left) in &recipe.left {
            let site = &anatomy.sites[*number];
            let gone = left.count(site.units.len()) == 0;
            if (blocks && gone) || (!gone && kind == Some(site.kind)) {
                next.left.insert(*number, left.clone());
            }
        }
        step(name, next.clone());
    }
    let attention = recipe.attention.clone().unwrap_or_default();
    let left = attention.tokens.as_ref().map(unmerged).filter(|tokens| *tokens != Tokens::default());
    let mut now = AttentionPlan { tokens: left, ..AttentionPlan::default() };
    let mut with = |name, attention: &AttentionPlan| {
        step(name, Recipe { attention: Some(attention.clone()).filter(|a| !a.is_exact()), ..next.clone() });
    };
    with("dropped tokens", &now);
    now.tokens = attention.tokens;
    with("merged tokens", &now);
    now.keys = attention.keys;
    with("chosen keys", &now);
    now.mca = attention.mca;
    with("values within budgets", &now);
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;

    #[test]
    fn with_accuracy_in_focus_nothing_may_be_lost_and_doubt_stays_within_the_budget() {
        let good = |lost: f64, doubt: f64, trained: bool| {
            let verdict = Verdict { lost, doubt, ..crate::judge::EMPTY };
            let tried = Tried {
                recipe: Recipe::default(),
                verdict,
                foreseen: 1.0,
                bytes: 1,
                accepted: false,
                pays: true,
                fair: true,
                trained,
            };
            [Focus::Speed, Focus::Accuracy].map(|focus| good_enough(&tried, focus, 0.005))
        };
        assert_eq!(good(-0.001, 0.004, false), [true, true]);
        assert_eq!(good(0.001, 0.004, false), [true, false], "a little is lost");
        assert_eq!(good(-0.001, 0.006, false), [false, false], "doubt is too large");
        assert_eq!(good(-0.001, 0.006, true), [true, true], "who was trained need not believe the same");
    }

    #[test]
    fn what_is_chosen_is_told_layer_by_layer() {
        let attention = "graded:0.4,layer2=exact,drop=0,drop1=0.5,keys=auto,keys0=exact,keys1=exact,keys3=exact";
        let told = chosen(&attention.parse().unwrap(), 4);
        let want = [
            "tokens leave in layer 1 (below 0.5 of an even share)",
            "chosen keys in layer 2",
            "graded values, alpha 0.4",
        ];
        assert_eq!(told, want);
    }

    #[test]
    fn tokens_that_leave_and_tokens_that_merge_are_told_apart() {
        let attention: AttentionPlan = "exact,merge=0,merge0=0.1,merge2=0.3,drop=0,drop2=0.5".parse().unwrap();
        let want = [
            "tokens leave in layer 2 (below 0.5 of an even share)",
            "like tokens are merged in layers 0 (0.1 of them), 2 (0.3 of them)",
        ];
        assert_eq!(chosen(&attention, 4), want);
        let recipe = Recipe { attention: Some(attention), ..Recipe::default() };
        let steps = techniques(&recipe, &Anatomy { sites: vec![], layers: 4 });
        let names: Vec<&str> = steps.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["dropped tokens", "merged tokens"]);
        assert_eq!(steps[0].1.attention, Some("exact,drop=0,drop2=0.5".parse().unwrap()));
        assert_eq!(steps[1].1, recipe);
        // Nothing leaves: that is no step.
        let merged = Recipe { attention: Some("exact,merge=0.1".parse().unwrap()), ..Recipe::default() };
        let steps = techniques(&merged, &Anatomy { sites: vec![], layers: 4 });
        assert_eq!(steps.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["merged tokens"]);
    }

    #[test]
    fn techniques_come_one_by_one() {
        let attention = "graded:0.4,layer2=exact,drop=0,drop1=0.5,keys=auto,keys0=exact,keys1=exact,keys3=exact";
        let recipe = Recipe {
            attention: Some(attention.parse().unwrap()),
            precision: Some(Precision::Int8),
            ..Recipe::default()
        };
        let steps = techniques(&recipe, &Anatomy { sites: vec![], layers: 4 });
        let names: Vec<&str> = steps.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["precision", "dropped tokens", "chosen keys", "values within budgets"]);
        assert_eq!(steps[3].1, recipe);
        assert!(steps[1].1.attention.as_ref().is_some_and(|a| a.keys.is_none() && a.mca.is_none()));
    }

    #[test]
    fn layers_that_share_a_block_have_its_bits() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/fixtures/albert-classify");
        let anatomy = Anatomy::of(&Model::load(&path).unwrap().architecture).unwrap();
        let mut recipe = Recipe { bits: Some(sparing_model::Bits::all(8)), ..Recipe::default() };
        recipe.set_bits(sparing_quantize::Part::Attention, Some(0), 5);
        assert_eq!(
            words(&recipe, &anatomy),
            "embeddings in 8 bits, attention by layer in 5 5 5, feed-forward in 8 8 8"
        );
    }

    #[test]
    fn what_does_not_pay_is_not_chosen() {
        let verdict = serde_json::json!({"score": 0.9, "lost": 0.0, "doubt": 0.0, "luck": 0.0, "loss": 0.1,
            "divergence": 0.0, "agreement": 1.0, "not_worse": 1.0});
        let tried = |foreseen: f64, pays: bool| Tried {
            trained: false,
            fair: true,
            recipe: Recipe { precision: Some(Precision::Int8), ..Recipe::default() },
            verdict: serde_json::from_value(verdict.clone()).unwrap(),
            foreseen,
            bytes: 1,
            accepted: true,
            pays,
        };
        assert_eq!(best(&[tried(2.0, true), tried(3.0, false), tried(1.5, true)], Focus::Speed, 0.0), Some(0));
        assert_eq!(best(&[tried(3.0, false)], Focus::Speed, 0.0), None);
        // Of those that are as fast as a clock can tell, the one that has lost least.
        let lost = |foreseen: f64, lost: f64| {
            let mut one = tried(foreseen, true);
            one.verdict.lost = lost;
            one
        };
        let three = [lost(2.0, 0.004), lost(1.97, 0.001), lost(1.9, 0.0)];
        assert_eq!(best(&three, Focus::Speed, 0.005), Some(1));
        assert_eq!(best(&[lost(2.0, 0.004), lost(1.99, 0.004)], Focus::Speed, 0.005), Some(0));
        // Nor what most rows are worse with, where that matters.
        let unfair = Tried { fair: false, ..tried(3.0, true) };
        assert_eq!(best(&[unfair, tried(1.5, true)], Focus::Speed, 0.0), Some(1));
    }

    #[test]
    fn the_frontier_is_what_nothing_beats() {
        let points = [(0.9, 1.0, 100), (0.9, 2.0, 100), (0.8, 2.0, 50), (0.8, 1.9, 60), (0.95, 0.5, 200)];
        assert_eq!(frontier(&points), [false, true, true, false, true]);
        assert_eq!(frontier(&[(0.5, 1.0, 1), (0.5, 1.0, 1)]), [true, true]);
        assert_eq!(frontier(&[(f64::NAN, 9.0, 1), (0.5, 1.0, 2), (0.6, f64::INFINITY, 1)]), [false, true, false]);
    }
}
