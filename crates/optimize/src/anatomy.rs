//! The parts of a network that can be removed or approximated.

use sparing_model::{Architecture, Attention, Blocks, Error, Ffn, Matrix};
use std::collections::{BTreeMap, BTreeSet};

/// What a site is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// An attention block; its units are heads.
    Attention,
    /// A feed-forward block; its units are inner neurons.
    Ffn,
}

/// A block that can lose units. Layers that share their weights are one site.
#[derive(Debug, Clone, PartialEq)]
pub struct Site {
    /// Attention or feed-forward.
    pub kind: Kind,
    /// The layers it stands in, ascending; one, unless weights are shared.
    pub layers: Vec<usize>,
    /// Number of the block among the layer's feed-forward blocks.
    pub block: usize,
    /// Units by the numbers an edit calls them: heads as published, neurons as they stand.
    pub units: Vec<usize>,
    /// Inputs of the map behind the units that one unit feeds.
    pub unit_width: usize,
    /// The map behind the units: its weight's name.
    pub map: String,
    /// Its outputs.
    pub outputs: usize,
    /// Weights that go with one unit.
    pub unit_weights: usize,
}

impl Site {
    /// `attention of layer 3`.
    pub fn name(&self) -> String {
        let kind = match self.kind {
            Kind::Attention => "attention",
            Kind::Ffn => "feed-forward",
        };
        match &self.layers[..] {
            [layer] => format!("{kind} of layer {layer}"),
            layers => format!("{kind} of {} layers that share it", layers.len()),
        }
    }

    /// Its highest layer.
    pub fn layer(&self) -> usize {
        self.layers.last().copied().unwrap_or(0)
    }
}

/// All sites of a network, attention before feed-forward, from the first layer to the last.
#[derive(Debug, Clone, PartialEq)]
pub struct Anatomy {
    /// The sites.
    pub sites: Vec<Site>,
    /// Number of layers.
    pub layers: usize,
}

impl Anatomy {
    /// Looks at a network. An error where no part of it could be removed.
    pub fn of(architecture: &Architecture) -> Result<Anatomy, Error> {
        let mut found: BTreeMap<(Kind, String), Site> = BTreeMap::new();
        for (number, layer) in architecture.layers.iter().enumerate() {
            if layer.bottleneck.is_some() {
                return Err(Error::new(
                    "layers with a bottleneck (MobileBERT) cannot be optimised; choose another model",
                ));
            }
            let attention = attention(&layer.attention);
            let ffns = layer.ffns.iter().enumerate().map(|(block, ffn)| feed_forward(block, ffn));
            for mut site in [attention].into_iter().chain(ffns).flatten() {
                site.layers = vec![number];
                let entry = found.entry((site.kind, site.map.clone()));
                entry.and_modify(|known| known.layers.push(number)).or_insert(site);
            }
        }
        let mut sites: Vec<Site> = found.into_values().collect();
        sites.sort_by_key(|site| (site.kind, site.layers.clone(), site.block));
        Ok(Anatomy { sites, layers: architecture.layers.len() })
    }

    /// Sites as blocks of layers.
    pub fn blocks(&self, sites: &BTreeSet<usize>) -> BTreeMap<usize, Blocks> {
        let mut found: BTreeMap<usize, Blocks> = BTreeMap::new();
        for site in sites.iter().filter_map(|site| self.sites.get(*site)) {
            for layer in &site.layers {
                let blocks = found.entry(*layer).or_default();
                match site.kind {
                    Kind::Attention => blocks.attention = true,
                    Kind::Ffn => blocks.ffn = true,
                }
            }
        }
        found
    }

    /// Blocks of layers as sites.
    pub fn sites_in(&self, blocks: &BTreeMap<usize, Blocks>) -> BTreeSet<usize> {
        let holds = |site: &Site| {
            let of = |blocks: &Blocks| if site.kind == Kind::Attention { blocks.attention } else { blocks.ffn };
            site.layers.iter().any(|layer| blocks.get(layer).is_some_and(of))
        };
        (0..self.sites.len()).filter(|site| holds(&self.sites[*site])).collect()
    }

    /// The first of the layers that share a layer's block: the one that recipes and plans note its bits for.
    pub fn first(&self, kind: Kind, layer: usize) -> usize {
        let site = self.sites.iter().find(|site| site.kind == kind && site.layers.contains(&layer));
        site.map_or(layer, |site| site.layers[0])
    }

    /// Numbers of the sites of a kind.
    pub fn of_kind(&self, kind: Kind) -> impl Iterator<Item = usize> + '_ {
        (0..self.sites.len()).filter(move |site| self.sites[*site].kind == kind)
    }
}

fn attention(attention: &Attention) -> Option<Site> {
    let units = attention.numbers();
    let weights = 3 * attention.query.inputs + attention.output.outputs;
    site(Kind::Attention, 0, units, attention.head_width, &attention.output.weight, attention.output.outputs, weights)
}

fn feed_forward(block: usize, ffn: &Ffn) -> Option<Site> {
    let units = (0..ffn.up.outputs).collect();
    site(Kind::Ffn, block, units, 1, &ffn.down.weight, ffn.down.outputs, ffn.up.inputs + ffn.down.outputs)
}

/// Nothing where nothing is left already, or where the map is a part of something larger.
fn site(
    kind: Kind,
    block: usize,
    units: Vec<usize>,
    unit_width: usize,
    map: &Matrix,
    outputs: usize,
    weights: usize,
) -> Option<Site> {
    let Matrix::Tensor { name, slice: None, .. } = map else { return None };
    if units.is_empty() {
        return None;
    }
    let (map, unit_weights) = (name.clone(), weights * unit_width);
    Some(Site { kind, layers: vec![], block, units, unit_width, map, outputs, unit_weights })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_are_blocks_and_blocks_are_sites() {
        let anatomy = Anatomy::of(&crate::testing::model().architecture).unwrap();
        let sites = BTreeSet::from([1, 2, 3]);
        let blocks = anatomy.blocks(&sites);
        let of = |attention, ffn| Blocks { attention, ffn };
        assert_eq!(blocks, [(0, of(false, true)), (1, of(true, true))].into());
        assert_eq!(anatomy.sites_in(&blocks), sites);
        assert!(anatomy.blocks(&BTreeSet::new()).is_empty() && anatomy.sites_in(&BTreeMap::new()).is_empty());
    }
}
