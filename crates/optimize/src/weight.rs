//! What blocks take on this machine: the order of the queue goes by it.

use crate::axes::shares;
use crate::elements::{Weight, coarse};
use crate::search::Search;
use crate::{Anatomy, Kind, Recipe, Stopwatch, Strategy, median};
use sparing_engine::{Engine, Options, PartTime};
use sparing_model::{Batch, Error, Executor, Sequence, Wanted};
use sparing_report::Focus;
use std::collections::BTreeMap;

/// Requests that blocks are timed on, spread over the lengths there are.
const REQUESTS: usize = 8;
/// Times that each is run.
const ROUNDS: usize = 9;

/// What every part of every layer takes, in seconds.
type Parts = BTreeMap<(Option<usize>, &'static str), f64>;

/// What the sites of a recipe's model take: time by the clock with speed in focus, else bytes.
pub(crate) fn weight(search: &mut Search<'_>, recipe: &Recipe) -> Result<Weight, Error> {
    let shop = search.shop;
    let anatomy = &shop.anatomy;
    let shares = shares(search, recipe)?;
    let heavy = heavy(anatomy, &shares);
    let same = vec![0; anatomy.sites.len()];
    // A shuffled queue has to begin with the same one every time.
    if search.settings.strategy == Strategy::Random {
        return Ok(Weight { heavy, steps: vec![0; same.len()], counted: same });
    }
    if search.settings.focus != Focus::Speed {
        return Ok(Weight { heavy, steps: coarse(&shares), counted: same });
    }
    // One thread waits for nobody: what a team reads depends on who else runs.
    let alone = Options { threads: 1, ..search.judge.engine().clone() };
    let engine = Engine::compile(&search.shop.shape(recipe)?, &alone)?;
    let flops = engine.layer_flops(&search.watch.lengths(), &Wanted::Head);
    let watch = search.watch;
    let key = format!("blocks of {}", recipe.key());
    let times = search.journal.clocked(&key, || Ok(times(anatomy, &least(&engine, watch)?, &flops)))?;
    Ok(Weight { heavy, steps: coarse(&times), counted: counted(anatomy, &flops) })
}

/// The least time of every part of every layer, over requests of the lengths that are timed: whatever else the machine is at
/// only adds to it, and adds most to what is short.
fn least(engine: &Engine, watch: &Stopwatch) -> Result<Parts, Error> {
    let vocabulary = engine.architecture().embeddings.vocabulary.max(1);
    let text = |(number, tokens): (usize, &usize)| {
        let ids = (0..*tokens).map(|token| ((number + token * 7919 + 13) % vocabulary) as u32);
        Sequence { ids: ids.collect(), types: vec![] }
    };
    let texts: Vec<Sequence> = watch.lengths().iter().enumerate().map(text).collect();
    let requests: Vec<&[Sequence]> = texts.chunks(texts.len().div_ceil(watch.requests().max(1)).max(1)).collect();
    let mut sums = Parts::new();
    for request in requests.iter().step_by(requests.len().div_ceil(REQUESTS).max(1)) {
        let batch = Batch { sequences: request.to_vec(), ..Batch::default() };
        engine.run(&batch)?;
        let mut least = Parts::new();
        for _ in 0..ROUNDS {
            for PartTime { layer, part, seconds } in engine.profile(&batch)?.1 {
                let known = least.entry((layer, part)).or_insert(f64::INFINITY);
                *known = known.min(seconds);
            }
        }
        least.into_iter().for_each(|(part, seconds)| *sums.entry(part).or_default() += seconds);
    }
    Ok(sums)
}

/// Operations of the layers that every site stands in.
fn counted(anatomy: &Anatomy, flops: &[u64]) -> Vec<u64> {
    anatomy.sites.iter().map(|site| site.layers.iter().map(|layer| flops[*layer]).sum()).collect()
}

/// What goes into every site, by what goes into the parts of every layer. Blocks that are alike, in layers of as many
/// operations, take the same: what differs is the clock.
fn times(anatomy: &Anatomy, parts: &Parts, flops: &[u64]) -> Vec<f64> {
    let of = |kind: Kind, part: &str| match kind {
        Kind::Ffn => part.starts_with("ffn"),
        Kind::Attention => {
            ["qkv", "positions", "importance", "values", "attention"].iter().any(|name| part.starts_with(name))
        }
    };
    let own = anatomy.sites.iter().map(|site| {
        let mine = parts.iter().filter(|((layer, part), _)| {
            layer.is_some_and(|layer| site.layers.contains(&layer)) && of(site.kind, part)
        });
        mine.map(|(_, taken)| taken).sum::<f64>()
    });
    let like = |(site, flops): (&crate::Site, u64)| (site.kind, site.units.len() * site.unit_weights, flops);
    let likes = anatomy.sites.iter().zip(counted(anatomy, flops)).map(like);
    let (likes, own): (Vec<_>, Vec<_>) = likes.zip(own).unzip();
    let alike =
        |like: &_| likes.iter().zip(&own).filter(|(other, _)| *other == like).map(|(_, taken)| *taken).collect();
    likes.iter().map(|like| median(alike(like))).collect()
}

/// The kind of block that takes most as far as that is counted: operations with speed in focus, else bytes.
fn heavy(anatomy: &Anatomy, shares: &[f64]) -> Kind {
    let all = |kind| anatomy.of_kind(kind).map(|site| shares[site]).sum::<f64>();
    if all(Kind::Ffn) >= all(Kind::Attention) { Kind::Ffn } else { Kind::Attention }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Economy;
    use crate::elements::queue;
    use crate::testing::{model, settings};

    #[test]
    fn the_clock_says_what_takes_most_and_not_what_is_counted() {
        let model = model();
        let anatomy = Anatomy::of(&model.architecture).unwrap();
        let (attention, ffn): (Vec<usize>, Vec<usize>) =
            (anatomy.of_kind(Kind::Attention).collect(), anatomy.of_kind(Kind::Ffn).collect());
        // Attention waits for memory; both its layers are alike, but for the clock.
        let parts = BTreeMap::from([
            ((None, "embeddings"), 9.0),
            ((Some(0), "qkv"), 1.0),
            ((Some(0), "attention"), 2.0),
            ((Some(0), "attention output"), 1.0),
            ((Some(0), "ffn up"), 1.0),
            ((Some(0), "ffn down"), 1.0),
            ((Some(0), "norms and activations"), 9.0),
            ((Some(1), "qkv"), 1.0),
            ((Some(1), "attention"), 3.0),
            ((Some(1), "attention output"), 1.0),
            ((Some(1), "ffn up"), 0.5),
            ((Some(1), "ffn down"), 0.5),
        ]);
        let of = |flops: [u64; 2]| {
            let times = times(&anatomy, &parts, &flops);
            [&attention, &ffn].map(|sites| sites.iter().map(|site| times[*site]).collect::<Vec<f64>>())
        };
        assert_eq!(of([7, 7]), [[4.5, 4.5], [1.5, 1.5]]);
        // A last layer that computes fewer rows is another thing.
        assert_eq!(of([7, 2]), [[4.0, 5.0], [2.0, 1.0]]);
        let weight = Weight {
            heavy: Kind::Ffn,
            steps: coarse(&times(&anatomy, &parts, &[7, 7])),
            counted: counted(&anatomy, &[7, 7]),
        };
        let settings = settings(Strategy::Paper, Focus::Speed, &[Economy::Blocks]);
        let order: Vec<usize> = queue(&anatomy, &weight, &settings).iter().map(|element| element.site).collect();
        assert_eq!(order, [attention[1], attention[0], ffn[1], ffn[0]]);
    }

    #[test]
    fn every_block_has_a_time() {
        let model = model();
        let anatomy = Anatomy::of(&model.architecture).unwrap();
        let engine = Engine::compile(&model, &Options { threads: 1, ..Options::default() }).unwrap();
        let text = |tokens: usize| Sequence { ids: vec![1; tokens], types: vec![] };
        let watch = Stopwatch::new((3..33).map(text).collect(), 2, 10);
        let parts = least(&engine, &watch).unwrap();
        let flops = engine.layer_flops(&watch.lengths(), &Wanted::Head);
        assert!(times(&anatomy, &parts, &flops).iter().all(|seconds| *seconds > 0.0 && seconds.is_finite()));
    }
}
