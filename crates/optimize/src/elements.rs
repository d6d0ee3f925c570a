//! Elements and the order in which they are looked at (Algorithm 1 of "Optimizing Transformers with Approximate Computing
//! for Faster, Smaller and more Accurate NLP Models", ICLR 2021 submission).

use crate::search::{Economy, Settings, Strategy};
use crate::{Anatomy, Kind};
use sparing_tasks::Random;

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

/// The queue: blocks, then heads and weight groups. `heavy`: the kind of block that takes most time (or bytes) comes first.
/// Within a kind layers come from the top or from the bottom.
pub fn queue(anatomy: &Anatomy, heavy: Kind, settings: &Settings) -> Vec<Element> {
    let light = if heavy == Kind::Ffn { Kind::Attention } else { Kind::Ffn };
    let mut queue = Vec::new();
    for granularity in 0..2 {
        for kind in [heavy, light] {
            let mut sites: Vec<usize> = anatomy.of_kind(kind).collect();
            if !settings.bottom_first {
                sites.reverse();
            }
            for site in sites {
                queue.extend(elements(anatomy, site, granularity, settings));
            }
        }
    }
    if settings.strategy == Strategy::Random {
        let mut random = Random::new(settings.seed);
        let blocks = queue.iter().take_while(|element| element.granularity == 0).count();
        let (blocks, parts) = queue.split_at_mut(blocks);
        random.shuffle(blocks);
        random.shuffle(parts);
    }
    queue
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
            most_rows: false,
            last_steps: true,
            seed,
            trials,
        }
    }

    #[test]
    fn blocks_first_the_heavy_kind_first_from_the_top() {
        let queue = queue(&anatomy(), Kind::Ffn, &settings(Strategy::Paper, false));
        let first: Vec<usize> = queue.iter().take(6).map(|e| e.site).collect();
        assert_eq!(first, [5, 4, 3, 2, 1, 0]);
        assert!(queue[..6].iter().all(|e| e.granularity == 0) && queue[6..].iter().all(|e| e.granularity == 1));
        // 600 neurons are three groups, the last one smaller; two heads a layer.
        assert_eq!(queue.len(), 6 + 9 + 6);
        assert_eq!((queue[8].site, queue[8].units.clone()), (5, 512..600));
        assert_eq!(queue[15].name(&anatomy()), "head 0 in attention of layer 2");
    }

    #[test]
    fn from_the_bottom_and_at_random_nothing_is_lost() {
        let order = |strategy, bottom| {
            let queue = queue(&anatomy(), Kind::Attention, &settings(strategy, bottom));
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
