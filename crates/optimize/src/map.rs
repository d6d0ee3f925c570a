//! The map of the network: what became of every part (Figure 7 of the paper).

use crate::outcome::layer_bits;
use crate::{Anatomy, Kind, Left, Recipe, Site};
use sparing_model::{HeadKind, Layer, LayerTokens, Model, Precision};
use sparing_quantize::{Part, targets};
use sparing_report::{ElementMap, LayerMap, Numbers, State, Width};

/// What became of every part of the network, in the model that a recipe made. `group`: neurons of a weight group.
pub fn element_map(recipe: &Recipe, anatomy: &Anatomy, model: &Model, group: usize) -> ElementMap {
    let mut layers: Vec<LayerMap> = model.architecture.layers.iter().map(begun).collect();
    let one_by_one = anatomy.of_kind(Kind::Ffn).any(|site| is_counted(recipe.left.get(&site)));
    let precision = model.plan.precision.unwrap_or(Precision::F32);
    for (number, site) in anatomy.sites.iter().enumerate() {
        let all = site.units.len();
        let left = recipe.left.get(&number);
        let count = left.map_or(all, |left| left.count(all));
        for layer in &site.layers {
            let map = &mut layers[*layer];
            match site.kind {
                Kind::Attention => {
                    map.heads = heads(site, left, *layer, model);
                    map.computed = computed(recipe, *layer, model).filter(|_| count > 0);
                    let exact = map.computed.is_none();
                    map.attention = if exact { whole(count, all) } else { State::Approximated };
                }
                Kind::Ffn => {
                    map.ffn = whole(count, all);
                    map.width = Some(Width { left: count, of: all });
                    map.groups = if one_by_one { vec![] } else { groups(site, left, group) };
                }
            }
        }
    }
    for (layer, map) in layers.iter_mut().enumerate() {
        let runs = map.attention != State::Removed || map.ffn != State::Removed;
        map.precision = runs.then(|| runs_in(model, layer));
        let bits = |part, kind, state| {
            let first = anatomy.first(kind, layer);
            let found = stored(model, part, Some(first)).or(layer_bits(recipe, first, kind));
            found.filter(|_| state != State::Removed)
        };
        map.bits = bits(Part::Ffn, Kind::Ffn, map.ffn);
        let attention = bits(Part::Attention, Kind::Attention, map.attention);
        map.attention_bits = (attention != map.bits).then(|| attention.unwrap_or(0));
        // The last layer computes what the head reads and nothing else.
        map.tokens = tokens(recipe, layer).filter(|_| layer + 1 < anatomy.layers);
    }
    let embeddings = Some(Numbers {
        bits: bits_of(model, &model.architecture.embeddings.word),
        precision: Some(Precision::F32.name().into()),
    });
    ElementMap { layers, embeddings, head: head(model, precision) }
}

/// What a layer is multiplied in: attention's before the feed-forward blocks', where the two differ.
fn runs_in(model: &Model, layer: usize) -> String {
    let precision = model.plan.precision.unwrap_or(Precision::F32);
    let stays = model.plan.bf16.get(&layer).copied().unwrap_or_default();
    let [attention, ffn] =
        [stays.attention, stays.ffn].map(|stays| if stays { Precision::Bf16 } else { precision }.name());
    if attention == ffn { ffn.into() } else { format!("{attention}/{ffn}") }
}

/// A layer before anything is known of it but what was gone already.
fn begun(layer: &Layer) -> LayerMap {
    let state = |gone: bool| if gone { State::Removed } else { State::Kept };
    let ffn = state(layer.ffns.iter().all(|ffn| ffn.up.outputs == 0));
    LayerMap { attention: state(layer.attention.heads == 0), ffn, ..LayerMap::default() }
}

/// Whether neurons went one by one: how many are left is known, and not that some group of them is gone.
fn is_counted(left: Option<&Left>) -> bool {
    matches!(left, Some(Left::Best(count) | Left::Count(count)) if *count > 0)
}

fn whole(left: usize, all: usize) -> State {
    match left {
        0 => State::Removed,
        left if left < all => State::Approximated,
        _ => State::Kept,
    }
}

/// A layer's heads.
fn heads(site: &Site, left: Option<&Left>, layer: usize, model: &Model) -> Vec<State> {
    let elements = model.plan.elements.as_ref().and_then(|elements| elements.layers.get(&layer)?.heads.as_ref());
    let is_left = |head: &usize| match left {
        Some(Left::Only(heads)) => heads.contains(head),
        Some(Left::Best(_)) => elements.is_none_or(|heads| heads.contains(head)),
        Some(Left::Count(count)) => head < count,
        Some(Left::Dimmed(..)) | None => true,
    };
    site.units.iter().map(|head| if is_left(head) { State::Kept } else { State::Removed }).collect()
}

/// A feed-forward block's weight groups, each where it stands.
fn groups(site: &Site, left: Option<&Left>, group: usize) -> Vec<State> {
    let is_left = |neuron: &usize| match left {
        Some(Left::Only(neurons)) => neurons.binary_search(neuron).is_ok(),
        Some(left) => *neuron < left.count(site.units.len()),
        None => true,
    };
    let state = |group: &[usize]| whole(group.iter().filter(|neuron| is_left(neuron)).count(), group.len());
    site.units.chunks(group.max(1)).map(state).collect()
}

/// What is done to tokens behind a layer's attention, in words.
fn tokens(recipe: &Recipe, layer: usize) -> Option<String> {
    let LayerTokens { drop, merge, .. } = recipe.attention.as_ref()?.tokens.as_ref()?.of(layer);
    let dropped = (drop > 0.0).then(|| format!("tokens below {drop} of an even share leave"));
    let merged = (merge > 0.0).then(|| format!("{merge} of the tokens are merged into others like them"));
    let told: Vec<String> = dropped.into_iter().chain(merged).collect();
    (!told.is_empty()).then(|| told.join(", then "))
}

/// How a layer of a recipe's model computes attention, if not exactly.
fn computed(recipe: &Recipe, layer: usize, model: &Model) -> Option<String> {
    let attention = recipe.attention.as_ref()?;
    let keys = attention.keys.as_ref().is_some_and(|keys| keys.of(layer, &model.architecture).is_some());
    let values = attention.mca.as_ref().filter(|mca| mca.alpha_of(layer).is_some());
    keys.then(|| "chosen keys".into()).or(values.map(|mca| format!("{} values", mca.sampler.name())))
}

/// What answers behind the layers. Of its maps the engine runs only a decoder, which is as large as the word table, in fewer
/// bits, and not in fewer than 16.
fn head(model: &Model, precision: Precision) -> Option<Numbers> {
    let head = &model.architecture.head;
    let language = matches!(head.kind, HeadKind::MaskedLm | HeadKind::CausalLm);
    let runs = if language && precision != Precision::F32 { Precision::Bf16 } else { Precision::F32 };
    head.stages.iter().any(|stage| stage.linear.is_some()).then(|| {
        let tied = language.then(|| bits_of(model, &model.architecture.embeddings.word)).flatten();
        Numbers { bits: stored(model, Part::Head, None).or(tied), precision: Some(runs.name().into()) }
    })
}

/// The most bits of a part's weights, or of a layer's; `None` where some are floats.
fn stored(model: &Model, part: Part, layer: Option<usize>) -> Option<u32> {
    let targets = targets(&model.architecture);
    let mut bits = targets.iter().filter(|target| target.part == part && target.layer == layer).peekable();
    bits.peek()?;
    bits.map(|target| bits_of(model, &target.name)).collect::<Option<Vec<u32>>>()?.into_iter().max()
}

fn bits_of(model: &Model, tensor: &str) -> Option<u32> {
    Some(model.weights.tensor(tensor).ok()?.quantized()?.bits())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workshop;
    use sparing_model::Bits;

    #[test]
    fn attention_that_is_not_exact_shows_in_the_map_and_so_do_its_bits() {
        let model = crate::testing::model();
        let anatomy = Anatomy::of(&model.architecture).unwrap();
        let map = |attention: &str| {
            let mut recipe = Recipe { attention: Some(attention.parse().unwrap()), ..Recipe::default() };
            recipe.set_bits(sparing_quantize::Part::Attention, Some(0), 4);
            recipe.set_bits(sparing_quantize::Part::Ffn, Some(0), 8);
            element_map(&recipe, &anatomy, &model, 16).layers
        };
        let keys = map("exact,keys=auto,merge=0,merge0=0.2");
        assert_eq!((keys[0].attention_bits, keys[0].bits), (Some(4), Some(8)));
        assert_eq!((keys[1].attention_bits, keys[1].bits), (None, None));
        assert_eq!((keys[0].attention, keys[0].computed.as_deref()), (State::Approximated, Some("chosen keys")));
        assert_eq!(keys[0].tokens.as_deref(), Some("0.2 of the tokens are merged into others like them"));
        // The last attention has one query, which sees all keys.
        assert_eq!((keys[1].attention, keys[1].computed.as_deref()), (State::Kept, None));
        let values = map("graded:0.4,layer0=exact");
        assert_eq!((values[0].attention, values[0].computed.as_deref()), (State::Kept, None));
        assert_eq!((values[1].attention, values[1].computed.as_deref()), (State::Approximated, Some("graded values")));
    }

    #[test]
    fn groups_are_removed_where_they_stood() {
        let model = crate::testing::model();
        let anatomy = Anatomy::of(&model.architecture).unwrap();
        let ffn = anatomy.of_kind(Kind::Ffn).next().unwrap();
        let all = anatomy.sites[ffn].units.len();
        let groups = |left: Left, group: usize| {
            let recipe = Recipe { left: [(ffn, left)].into(), ..Recipe::default() };
            let map = element_map(&recipe, &anatomy, &model, group).layers.swap_remove(0);
            (map.groups, map.width.unwrap().left, map.ffn)
        };
        let (kept, some, gone) = (State::Kept, State::Approximated, State::Removed);
        // Four groups, the last one smaller, as in the queue.
        let quarter = all.div_ceil(4);
        assert!(all - 3 * quarter > 1 && all < 4 * quarter);
        // From both ends inwards, and half a group of the middle.
        let middle = Left::Only((quarter + quarter / 2..3 * quarter).collect());
        assert_eq!(groups(middle, quarter), (vec![gone, some, kept, gone], 2 * quarter - quarter / 2, some));
        // Any of them.
        let second = Left::Only((0..quarter).chain(2 * quarter..all).collect());
        assert_eq!(groups(second, quarter), (vec![kept, gone, kept, kept], all - quarter, some));
        let last = Left::Only((0..all - 1).collect());
        assert_eq!(groups(last, quarter), (vec![kept, kept, kept, some], all - 1, some));
        // Where neurons went one by one there is no telling which group went.
        for left in [Left::Best(all / 2), Left::Count(all / 2)] {
            assert_eq!(groups(left, quarter), (vec![], all / 2, some));
        }
        assert_eq!(groups(Left::Best(0), quarter), (vec![gone; 4], 0, gone));
    }

    #[test]
    fn every_part_says_what_it_runs_in_and_how_it_is_stored() {
        let whole = crate::testing::model();
        let shop = Workshop::new(&whole).unwrap();
        let map = |recipe: &Recipe| element_map(recipe, &shop.anatomy, &shop.make(recipe).unwrap(), 16);
        let runs = |precision: Precision| {
            let map = map(&Recipe { precision: Some(precision), ..Recipe::default() });
            let names = map.layers.into_iter().map(|layer| layer.precision.unwrap());
            (names.collect::<Vec<_>>(), map.embeddings.unwrap(), map.head.unwrap())
        };
        let f32 = |bits: Option<u32>| Numbers { bits, precision: Some("f32".into()) };
        // The head's small maps and what words are looked up in stay floats.
        assert_eq!(runs(Precision::Int8), (vec!["int8".into(), "int8".into()], f32(None), f32(None)));
        assert_eq!(runs(Precision::Bf16).0, ["bf16", "bf16"]);
        // Sites are the attention of both layers, then their feed-forward blocks.
        let stay = |sites: &[usize]| {
            let bf16 = sites.iter().copied().collect();
            let layers = map(&Recipe { precision: Some(Precision::Int8), bf16, ..Recipe::default() }).layers;
            layers.into_iter().map(|layer| layer.precision.unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(
            (stay(&[0, 3]), stay(&[1, 3])),
            (vec!["bf16/int8".into(), "int8/bf16".into()], vec!["int8".into(), "bf16".into()])
        );
        assert_eq!(runs(Precision::F32).0, ["f32", "f32"]);
        let bits = Bits { embeddings: Some(4), head: Some(8), ..Bits::all(6) };
        let mut recipe = Recipe { bits: Some(bits), ..Recipe::default() };
        recipe.set_bits(Part::Attention, Some(1), 5);
        let stored = map(&recipe);
        assert_eq!((stored.embeddings, stored.head), (Some(f32(Some(4))), Some(f32(Some(8)))));
        assert_eq!(
            stored.layers.iter().map(|l| (l.attention_bits, l.bits)).collect::<Vec<_>>(),
            [(None, Some(6)), (Some(5), Some(6))]
        );
        // As it came, not as it was asked for.
        let came = shop.make(&recipe).unwrap();
        let again = element_map(&Recipe::default(), &shop.anatomy, &came, 16);
        assert_eq!((again.layers[0].bits, again.embeddings), (Some(6), Some(f32(Some(4)))));
        // Nothing is left to run.
        let none = shop.anatomy.sites.iter().enumerate().filter(|(_, site)| site.layers == [1]);
        let left = none.map(|(site, _)| (site, Left::Only(vec![]))).collect();
        let without = Recipe { left, ..recipe };
        let last = &map(&without).layers[1];
        assert_eq!((&last.precision, last.bits, last.attention_bits), (&None, None, None));
        // Nor is it there again when the rest is optimised once more.
        let rest = shop.make(&without).unwrap();
        let anatomy = Anatomy::of(&rest.architecture).unwrap();
        let last = &element_map(&Recipe::default(), &anatomy, &rest, 16).layers[1];
        assert_eq!((last.attention, last.ffn), (State::Removed, State::Removed));
    }
}
