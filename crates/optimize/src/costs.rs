//! What parts of the network cost: operations are counted, which is the same every time; how fast precisions are on this
//! machine is measured, coarsely. So the same search finds the same plan again, whatever else the machine is at.

use crate::{Anatomy, Journal, Kind, Recipe, Site, Stopwatch};
use sparing_engine::{Engine, Options};
use sparing_model::{Error, Model, Precision, Wanted};

/// What parts cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Costs {
    /// Share of the time that goes into each site's units.
    shares: Vec<f64>,
    /// How much faster precisions are than the baseline's.
    precisions: Vec<(Precision, f64)>,
}

impl Costs {
    /// Counts a model's operations on requests of these lengths, and measures how fast precisions are. A last layer that computes
    /// nothing but what the head reads costs as little as that is. Precisions are raced on one thread, which waits for nobody: two that
    /// wait for each other take as long as the slower core of a machine that is at something else, and any precision is as slow there.
    pub fn measure(
        model: &Model,
        anatomy: &Anatomy,
        watch: &Stopwatch,
        options: &Options,
        baseline: &Engine,
        precisions: &[Precision],
        journal: &mut Journal,
    ) -> Result<Costs, Error> {
        let lengths = watch.lengths();
        let whole = baseline.ledger(&lengths, &Wanted::Head).flops().max(1) as f64;
        let blocks = baseline.block_flops(&lengths, &Wanted::Head);
        let weights = |site: &Site| (site.units.len() * site.unit_weights) as f64;
        let share = |site: &Site| {
            let of_layer = |layer: &usize| {
                // Feed-forward blocks of one layer are counted together.
                let beside = anatomy.sites.iter().filter(|s| s.kind == site.kind && s.layers.contains(layer));
                let counted = blocks[*layer][usize::from(site.kind == Kind::Ffn)] as f64;
                counted * weights(site) / beside.map(weights).sum::<f64>()
            };
            site.layers.iter().map(of_layer).sum::<f64>() / whole
        };
        let shares = anatomy.sites.iter().map(share).collect();
        let mut faster = Vec::new();
        let alone = Options { threads: 1, ..options.clone() };
        let mut own: Option<Engine> = None;
        for precision in precisions {
            let ratio = journal.clocked(&format!("the model in {}", precision.name()), || {
                let before = match &mut own {
                    Some(before) => before,
                    none => none.insert(Engine::compile(model, &alone)?),
                };
                let engine = Engine::compile(model, &Options { precision: Some(*precision), ..alone.clone() })?;
                Ok(watch.race(before, &engine, 7)?.undisturbed)
            })?;
            // To halves: what is left after that is the machine, not its mood.
            faster.push((*precision, (ratio * 2.0).round() / 2.0));
        }
        Ok(Costs { shares, precisions: faster })
    }

    /// The same where precisions are so many times faster.
    #[cfg(test)]
    pub(crate) fn with_precisions(self, faster: &[(Precision, f64)]) -> Costs {
        Costs { precisions: faster.to_vec(), ..self }
    }

    /// How many times faster a precision is than the baseline's.
    pub fn precision(&self, precision: Precision) -> f64 {
        self.precisions.iter().find(|(p, _)| *p == precision).map_or(1.0, |(_, ratio)| *ratio)
    }

    /// Precisions that were measured and are not faster here.
    pub fn slow(&self) -> impl Iterator<Item = Precision> {
        self.precisions.iter().filter(|(_, ratio)| *ratio <= 1.0).map(|(precision, _)| *precision)
    }

    /// Share of the time that goes into a site's units.
    pub fn share(&self, site: usize) -> f64 {
        self.shares[site]
    }

    /// The baseline's time over what a recipe is expected to take. `chosen`: share of the time of the layers that is saved by
    /// what is chosen while it runs.
    pub fn ratio(&self, recipe: &Recipe, anatomy: &Anatomy, chosen: f64) -> f64 {
        let gone = |(site, left): (&usize, &crate::Left)| {
            let all = anatomy.sites[*site].units.len();
            self.shares[*site] * (all - left.count(all)) as f64 / all as f64
        };
        let saved: f64 = recipe.left.iter().map(gone).sum();
        let layers: f64 = self.shares.iter().sum();
        let left = (1.0 - saved - chosen * (layers - saved)).max(0.02);
        let faster = recipe.precision.map_or(1.0, |precision| self.precision(precision));
        let stays = |site: &usize| self.shares[*site] - recipe.left.get(site).map_or(0.0, |left| gone((site, left)));
        let stays = recipe.bf16.iter().map(stays).sum::<f64>().min(left);
        // A precision that was far too slow to be asked for has no say where nothing is in it.
        let in_bf16 = if stays > 0.0 { stays / self.precision(Precision::Bf16) } else { 0.0 };
        1.0 / ((left - stays) / faster + in_bf16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Left;
    use sparing_model::Sequence;

    #[test]
    fn a_last_layer_costs_what_the_head_reads() {
        let model = crate::testing::model();
        let anatomy = Anatomy::of(&model.architecture).unwrap();
        let text = Sequence { ids: (1..=20).collect(), types: vec![0; 20] };
        let watch = Stopwatch::new(vec![text], 1, 1);
        let options = Options { threads: 1, ..Options::default() };
        let engine = Engine::compile(&model, &options).unwrap();
        let costs = Costs::measure(&model, &anatomy, &watch, &options, &engine, &[], &mut Journal::default()).unwrap();
        let [first, last, first_ffn, last_ffn] = costs.shares[..] else { panic!("{:?}", costs.shares) };
        // One row of twenty behind the attention; keys and values are of all.
        assert!((first_ffn / last_ffn - 20.0).abs() < 1e-6, "{:?}", costs.shares);
        assert!(first / last > 1.5 && first / last < 3.0, "{:?}", costs.shares);
        // What is nobody's: embeddings, norms and the head.
        let whole = costs.shares.iter().sum::<f64>();
        assert!(whole > 0.8 && whole < 1.0, "{whole}");
    }

    #[test]
    fn what_stays_in_bf16_takes_its_own_time() {
        let anatomy = Anatomy::of(&crate::testing::model().architecture).unwrap();
        let precisions = vec![(Precision::Int8, 4.0), (Precision::Bf16, 2.0)];
        // A tenth of the time is nobody's.
        let costs = Costs { shares: vec![0.15, 0.15, 0.3, 0.3], precisions };
        let ratio = |bf16: &[usize], left: &[(usize, Left)]| {
            let (bf16, left) = (bf16.iter().copied().collect(), left.iter().cloned().collect());
            costs.ratio(&Recipe { precision: Some(Precision::Int8), bf16, left, ..Recipe::default() }, &anatomy, 0.0)
        };
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        near(ratio(&[], &[]), 4.0);
        let slow = costs.clone().with_precisions(&[(Precision::Int8, 4.0), (Precision::Bf16, 0.0)]);
        near(slow.ratio(&Recipe { precision: Some(Precision::Int8), ..Recipe::default() }, &anatomy, 0.0), 4.0);
        near(ratio(&[2], &[]), 1.0 / (0.7 / 4.0 + 0.3 / 2.0));
        // What is gone takes no time in either.
        near(ratio(&[2], &[(2, Left::Only(vec![]))]), 4.0 / 0.7);
        near(ratio(&[0, 2], &[(3, Left::Only(vec![]))]), 1.0 / (0.25 / 4.0 + 0.45 / 2.0));
    }
}
