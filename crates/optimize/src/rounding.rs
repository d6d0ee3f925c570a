//! Weights in fewer bits, tensor by tensor. What was rounded once is kept: a search comes back to the same bits of the same
//! tensors again and again.

use crate::{Kind, Left, Recipe, Site, Workshop};
use sparing_model::{Bits, Error, Model};
use sparing_quantize::{Compensation, Part, Quantize, Rounded, ScaleChoice, Statistics, Target};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

/// Bits from which rounding errors are too small to be made up for.
const FINE: u32 = 8;

/// By tensor, bits, and what is left of its block.
type RoundedBy = HashMap<(String, u32, String), Arc<Rounded>>;
/// By what maps read, and what is left of that; nothing where too little was seen.
type CompensationBy = HashMap<(String, String), Option<Arc<Compensation>>>;

/// What was rounded so far.
#[derive(Default)]
pub(crate) struct Rounder {
    rounded: Mutex<RoundedBy>,
    compensations: Mutex<CompensationBy>,
}

impl Rounder {
    /// A tensor of a recipe's model in fewer bits. Maps that lost inputs read what they read before, without those.
    pub fn round(
        &self,
        shop: &Workshop<'_>,
        (recipe, model): (&Recipe, &Model),
        target: &Target,
        bits: u32,
    ) -> Result<Arc<Rounded>, Error> {
        let site = shop.anatomy.sites.iter().position(|site| belongs(target, site));
        let left = site.and_then(|site| Some((site, recipe.left.get(&site)?)));
        let left_key = left.map(|(_, left)| serde_json::to_string(left).unwrap_or_default()).unwrap_or_default();
        let key = (target.name.clone(), bits, left_key.clone());
        if let Some(known) = lock(&self.rounded).get(&key) {
            return Ok(known.clone());
        }
        let kept = left.filter(|(site, _)| shop.anatomy.sites[*site].map == target.name);
        let kept = kept.map(|(site, left)| inputs(shop, site, left));
        let all = shop.statistics().filter(|_| bits < FINE);
        let statistics = all.map(|all| read_by(all, target, kept.as_deref()));
        let job = Quantize {
            model,
            bits: Bits::default(),
            layers: BTreeMap::new(),
            choice: ScaleChoice::Searched,
            statistics: statistics.as_ref(),
            fixed_ranges: false,
        };
        let leader = target.uses.first().and_then(|used| Some(statistics.as_ref()?.get(&used.map)?.leader.clone()));
        let compensation = leader.and_then(|leader| {
            let key = (leader, if kept.is_some() { left_key } else { String::new() });
            let made = || job.compensation(target).map(Arc::new);
            lock(&self.compensations).entry(key).or_insert_with(made).clone()
        });
        let rounded = Arc::new(job.round(target, bits, compensation.as_deref())?);
        lock(&self.rounded).insert(key, rounded.clone());
        Ok(rounded)
    }
}

/// Whether a tensor is one of a site's.
fn belongs(target: &Target, site: &Site) -> bool {
    let part = if site.kind == Kind::Attention { Part::Attention } else { Part::Ffn };
    target.part == part && target.layer.is_some_and(|layer| site.layers.contains(&layer))
}

/// The inputs that are left of the map behind a site's units.
fn inputs(shop: &Workshop<'_>, number: usize, left: &Left) -> Vec<usize> {
    let site = &shop.anatomy.sites[number];
    let places: Vec<usize> = match left {
        Left::Best(count) => {
            let rung = shop.ladder(number).iter().find(|rung| rung.kept.len() == *count);
            rung.map(|rung| rung.kept.clone()).unwrap_or_default()
        }
        Left::Only(units) => (0..site.units.len()).filter(|place| units.contains(&site.units[*place])).collect(),
        Left::Count(count) => (0..*count).collect(),
        Left::Dimmed(..) => (0..site.units.len()).collect(),
    };
    places.into_iter().flat_map(|place| place * site.unit_width..(place + 1) * site.unit_width).collect()
}

/// What is known of what the maps of a tensor read, or of those inputs that are left.
fn read_by(all: &Statistics, target: &Target, kept: Option<&[usize]>) -> Statistics {
    let maps = target.uses.iter().map(|used| &used.map);
    let leaders = maps.clone().filter_map(|map| Some(&all.get(map)?.leader));
    let known = maps.chain(leaders).filter_map(|map| Some((map.clone(), all.get(map)?)));
    known.map(|(map, sums)| (map, kept.map_or_else(|| sums.clone(), |kept| sums.of_inputs(kept)))).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
