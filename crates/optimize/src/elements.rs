//! Elements and the order in which they are looked at (Algorithm 1 of "Optimizing Transformers with Approximate Computing
//! for Faster, Smaller and more Accurate NLP Models", ICLR 2021 submission).

use crate::search::Settings;
use crate::{Anatomy, Economy, Kind, Strategy};
use sparing_model::HeadKind;
use sparing_tasks::Random;
use std::cmp::Reverse;

/// A part that can be removed or approximated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// The block it belongs to, or is.
    pub site: usize,
    /// Places of its units in the site.
    pub units: std::ops::Range<usize>,
    /// 0: a block, 1: a head or a weight group.
    pub granularity: usize,
}

impl Element {
    /// `heads 3 of attention of layer 2`.
    pub fn name(&self, anatomy: &Anatomy) -> String {
        let site = &anatomy.sites[self.site];
        match (self.granularity, site.kind) {
            (0, _) => site.name(),
            (_, Kind::Attention) => format!("head {} in {}", site.units[self.units.start], site.name()),
            (_, Kind::Ffn) => format!("neurons {}..{} in {}", self.units.start, self.units.end, site.name()),
        }
    }
}

/// What the order of the queue goes by.
#[derive(Debug, Clone, PartialEq)]
pub struct Weight {
    /// The kind of block that takes most, of blocks that cannot be told apart otherwise.
    pub heavy: Kind,
    /// What every site takes, coarsely: time with speed in focus, else bytes.
    pub steps: Vec<u32>,
    /// What every site takes as far as that is counted, for those that take the same coarsely.
    pub counted: Vec<u64>,
}

/// Steps between nothing and the heaviest: what is left of a clock's reading is the machine, not its mood.
const STEPS: f64 = 4.0;

/// What sites take, in steps that the same machine comes to every time.
pub fn coarse(taken: &[f64]) -> Vec<u32> {
    let most = taken.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    taken.iter().map(|one| (STEPS * one / most).round() as u32).collect()
}

/// The queue: blocks, then heads and weight groups; of either the heaviest first. What weighs the same comes by layer, from
/// the top or from the bottom.
pub fn queue(anatomy: &Anatomy, weight: &Weight, settings: &Settings) -> Vec<Element> {
    let mut sites: Vec<usize> = (0..anatomy.sites.len()).collect();
    sites.sort_by_key(|site| {
        let found = &anatomy.sites[*site];
        let layer = if settings.bottom_first { found.layers[0] } else { anatomy.layers - found.layer() };
        let lightness = (Reverse(weight.steps[*site]), found.kind != weight.heavy, Reverse(weight.counted[*site]));
        (lightness, layer, found.block)
    });
    let of = |granularity| sites.iter().flat_map(move |site| elements(anatomy, *site, granularity, settings));
    let mut queue: Vec<Element> = of(0).chain(of(1)).collect();
    if settings.strategy == Strategy::Random {
        let mut random = Random::new(settings.seed);
        let blocks = queue.iter().take_while(|element| element.granularity == 0).count();
        let (blocks, parts) = queue.split_at_mut(blocks);
        random.shuffle(blocks);
        random.shuffle(parts);
    }
    queue
}

/// Whether the queue begins at the bottom where nobody says: understanding a text needs what is near, which lower layers know,
/// so the top can be spared; predicting the next word needs what is far, which upper layers know (Section 4 and Appendix D).
pub fn bottom_first(head: HeadKind) -> bool {
    matches!(head, HeadKind::CausalLm | HeadKind::MaskedLm)
}

/// A site's elements of one granularity, as far as they are on the menu.
fn elements(anatomy: &Anatomy, site: usize, granularity: usize, settings: &Settings) -> Vec<Element> {
    let found = &anatomy.sites[site];
    let all = found.units.len();
    let element = |units| Element { site, units, granularity };
    match (granularity, found.kind) {
        (0, _) if settings.may(Economy::Blocks) => vec![element(0..all)],
        (1, Kind::Attention) if settings.may(Economy::Heads) => (0..all).map(|head| element(head..head + 1)).collect(),
        (1, Kind::Ffn) if settings.may(Economy::Width) => {
            let group = settings.group.max(1);
            (0..all).step_by(group).map(|from| element(from..(from + group).min(all))).collect()
        }
        _ => vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Site;
    use sparing_report::Focus;

    fn anatomy() -> Anatomy {
        let site = |kind, layer, units| Site {
            kind,
            layers: vec![layer],
            block: 0,
            units: (0..units).collect(),
            unit_width: 1,
            map: format!("{kind:?}{layer}"),
            outputs: 4,
            unit_weights: 8,
        };
        let of = |kind, units| (0..3).map(move |layer| site(kind, layer, units));
        Anatomy { sites: of(Kind::Attention, 2).chain(of(Kind::Ffn, 600)).collect(), layers: 3 }
    }

    fn settings(strategy: Strategy, bottom_first: bool) -> Settings {
        let menu = Economy::ALL.to_vec();
        let (focus, budget, group, seed, trials) = (Focus::Speed, 0.005, 256, 3, 99);
        Settings {
            focus,
            budget,
            strategy,
            menu,
            group,
            bottom_first,
            thresholds: Default::default(),
            most_rows: false,
            last_steps: true,
            seed,
            trials,
        }
    }

    /// What attention takes in each layer, then feed-forward.
    fn weight(heavy: Kind, steps: [u32; 6]) -> Weight {
        Weight { heavy, steps: steps.to_vec(), counted: vec![1; 6] }
    }

    #[test]
    fn blocks_first_the_heavy_first_from_the_top() {
        let queue = queue(&anatomy(), &weight(Kind::Attention, [2, 2, 2, 4, 4, 4]), &settings(Strategy::Paper, false));
        let first: Vec<usize> = queue.iter().take(6).map(|e| e.site).collect();
        assert_eq!(first, [5, 4, 3, 2, 1, 0]);
        assert!(queue[..6].iter().all(|e| e.granularity == 0) && queue[6..].iter().all(|e| e.granularity == 1));
        // 600 neurons are three groups, the last one smaller; two heads a layer.
        assert_eq!(queue.len(), 6 + 9 + 6);
        assert_eq!((queue[8].site, queue[8].units.clone()), (5, 512..600));
        assert_eq!(queue[15].name(&anatomy()), "head 0 in attention of layer 2");
    }

    #[test]
    fn a_block_that_takes_little_waits_and_so_do_its_parts() {
        let sites = |weight: &Weight, bottom| {
            let queue = queue(&anatomy(), weight, &settings(Strategy::Paper, bottom));
            let of = |granularity| {
                let mut sites: Vec<usize> =
                    queue.iter().filter(|e| e.granularity == granularity).map(|e| e.site).collect();
                sites.dedup();
                sites
            };
            assert_eq!(of(0), of(1));
            of(0)
        };
        // The last layer computes one row.
        assert_eq!(sites(&weight(Kind::Ffn, [3, 3, 1, 4, 4, 0]), false), [4, 3, 1, 0, 2, 5]);
        assert_eq!(sites(&weight(Kind::Ffn, [3, 3, 1, 4, 4, 0]), true), [3, 4, 0, 1, 2, 5]);
        // All the same by the clock: what is counted decides.
        let mut same = weight(Kind::Attention, [1; 6]);
        assert_eq!(sites(&same, false), [2, 1, 0, 5, 4, 3]);
        same.counted = vec![9, 9, 1, 9, 9, 1];
        assert_eq!(sites(&same, false), [1, 0, 2, 4, 3, 5]);
    }

    #[test]
    fn what_a_clock_reads_is_rounded_until_it_reads_the_same_again() {
        assert_eq!(coarse(&[2.0, 1.95, 1.2, 0.1]), [4, 4, 2, 0]);
        assert_eq!(coarse(&[1.9, 2.04, 1.26, 0.12]), [4, 4, 2, 0]);
        assert_eq!(coarse(&[0.0, 0.0]), [0, 0]);
        assert!(coarse(&[]).is_empty());
    }

    #[test]
    fn the_task_says_which_end_matters_less() {
        let heads = [HeadKind::Classify, HeadKind::Regress, HeadKind::Answer, HeadKind::CausalLm, HeadKind::MaskedLm];
        assert_eq!(heads.map(bottom_first), [false, false, false, true, true]);
    }

    #[test]
    fn from_the_bottom_and_at_random_nothing_is_lost() {
        let order = |strategy, bottom| {
            let queue = queue(&anatomy(), &weight(Kind::Attention, [1; 6]), &settings(strategy, bottom));
            queue.iter().map(|e| (e.granularity, e.site, e.units.start)).collect::<Vec<_>>()
        };
        assert_eq!(order(Strategy::Paper, true)[..3], [(0, 0, 0), (0, 1, 0), (0, 2, 0)]);
        let (mut random, mut paper) = (order(Strategy::Random, false), order(Strategy::Paper, false));
        assert_ne!(random, paper);
        assert_eq!(random, order(Strategy::Random, false));
        random.sort_unstable();
        paper.sort_unstable();
        assert_eq!(random, paper);
    }
}
