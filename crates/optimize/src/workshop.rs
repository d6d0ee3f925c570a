//! Where recipes become models.

use crate::rounding::Rounder;
use crate::{Anatomy, Kind, Left, Moments, Recipe, Site, Spared};
use sparing_model::{Calibration, Edits, Error, FfnEdit, LayerEdit, Linear, Model, NewNumbers};
use sparing_quantize::{Statistics, Target, targets};
use std::sync::{Arc, Mutex};

/// A model, what can be cut out of it, and what was prepared for that.
pub struct Workshop<'a> {
    /// The model as it came.
    pub model: &'a Model,
    /// Its parts.
    pub anatomy: Anatomy,
    /// Per site: what is left at every number of units that was prepared, most first.
    ladders: Vec<Vec<Spared>>,
    statistics: Option<Statistics>,
    /// Of the model as it came; for values within budgets.
    calibration: Option<Calibration>,
    rounder: Rounder,
}

impl<'a> Workshop<'a> {
    /// A workshop without preparations: units can be removed, but nothing makes up for them.
    pub fn new(model: &'a Model) -> Result<Workshop<'a>, Error> {
        let anatomy = Anatomy::of(&model.architecture)?;
        let ladders = vec![Vec::new(); anatomy.sites.len()];
        // What it came with is lost where anything is cut out of it.
        let calibration = if needs_calibration(model) { model.calibration()? } else { None };
        Ok(Workshop { model, anatomy, ladders, statistics: None, calibration, rounder: Rounder::default() })
    }

    /// Lets values have budgets, by a calibration of the model as it came.
    pub fn calibrate(&mut self, calibration: Calibration) {
        self.calibration = Some(calibration);
    }

    /// Whether values can have budgets.
    pub fn is_calibrated(&self) -> bool {
        self.calibration.is_some()
    }

    /// The model with its own calibration, where its plan needs one.
    pub(crate) fn fitted(&self, model: Model) -> Result<Model, Error> {
        match self.calibration.as_ref().filter(|_| needs_calibration(&model)) {
            Some(calibration) => {
                let own = calibration.of_heads(&self.model.architecture, &model)?;
                Ok(model.calibrated(own))
            }
            None => Ok(model),
        }
    }

    /// Prepares every site for these numbers of units (descending), from what its maps read. `progress` gets sites done;
    /// false if it asked to stop.
    pub fn prepare(
        &mut self,
        statistics: Statistics,
        stops: &dyn Fn(&Site) -> Vec<usize>,
        progress: &(dyn Fn(usize, usize) -> bool + Sync),
    ) -> Result<bool, Error> {
        let sites = &self.anatomy.sites;
        let weights: Vec<Vec<f32>> = sites.iter().map(|site| self.weight(site)).collect::<Result<_, _>>()?;
        let stops: Vec<Vec<usize>> = sites.iter().map(stops).collect();
        let next = Mutex::new((0, 0));
        let found: Vec<Mutex<Vec<Spared>>> = sites.iter().map(|_| Mutex::default()).collect();
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(sites.len());
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let number = {
                            let mut next = lock(&next);
                            if next.0 >= sites.len() || !progress(next.1, sites.len()) {
                                return;
                            }
                            next.0 += 1;
                            next.0 - 1
                        };
                        *lock(&found[number]) = ladder(&sites[number], &weights[number], &statistics, &stops[number]);
                        lock(&next).1 += 1;
                    }
                });
            }
        });
        let complete = lock(&next).1 == sites.len();
        self.ladders = found.into_iter().map(|ladder| ladder.into_inner().unwrap_or_else(|e| e.into_inner())).collect();
        self.statistics = Some(statistics);
        Ok(complete)
    }

    /// What a site can be reduced to.
    pub fn ladder(&self, site: usize) -> &[Spared] {
        &self.ladders[site]
    }

    /// Makes the model of a recipe. The weights are not rounded yet.
    pub fn shape(&self, recipe: &Recipe) -> Result<Model, Error> {
        let mut edits = Edits::default();
        for (number, left) in &recipe.left {
            let site =
                self.anatomy.sites.get(*number).ok_or_else(|| Error::new(format!("there is no site {number}")))?;
            let (kept, numbers) = self.left(*number, site, left)?;
            for layer in &site.layers {
                let edit: &mut LayerEdit = edits.layers.entry(*layer).or_default();
                match site.kind {
                    Kind::Attention => (edit.heads, edit.output) = (Some(kept.clone()), numbers.clone()),
                    Kind::Ffn => {
                        let ffn = FfnEdit { neurons: Some(kept.clone()), down: numbers.clone() };
                        edit.ffns.insert(site.block, ffn);
                    }
                }
            }
        }
        let mut model = self.model.pruned(&edits)?;
        if recipe.attention.is_some() {
            model.plan.attention = recipe.attention.clone();
        }
        if recipe.precision.is_some() {
            (model.plan.precision, model.plan.bf16) = (recipe.precision, self.anatomy.blocks(&recipe.bf16));
        }
        self.fitted(model)
    }

    /// Makes the model of a recipe as it will be saved, with its weights rounded where the recipe says so, or where they
    /// came rounded. What is stored in as few bits already is not rounded again.
    pub fn make(&self, recipe: &Recipe) -> Result<Model, Error> {
        let mut model = self.shape(recipe)?;
        let mut rounded = Vec::new();
        for target in targets(&model.architecture) {
            let now = model.weights.tensor(&target.name)?.quantized().map(|quantized| quantized.bits());
            // What stays in bf16 does not bear 8 bits.
            let stays = target.is_of(&model.plan.bf16);
            let bits = recipe.bits.filter(|_| !stays);
            let wanted = bits.and_then(|bits| target.bits(&bits, &recipe.layer_bits));
            let wanted = wanted.or_else(|| self.stored(&target.name));
            if let Some(bits) = wanted.filter(|bits| now.is_none_or(|now| *bits < now)) {
                rounded.push(self.rounder.round(self, (recipe, &model), &target, bits)?);
            }
        }
        let tensors = sparing_quantize::with_biases(&model.weights, rounded.iter().map(Arc::as_ref))?;
        model.weights = model.weights.replace(tensors)?;
        if let Some(bits) = recipe.bits {
            let was = model.plan.quantization.take().unwrap_or_default();
            model.plan.quantization = Some(was.rounded(bits, &recipe.layer_bits));
        }
        self.fitted(model)
    }

    /// Bytes of a candidate's weights as they would be saved: rounded where they came rounded.
    pub fn bytes(&self, model: &Model) -> u64 {
        let saved = |target: &Target| {
            let tensor = model.weights.tensor(&target.name).ok().filter(|tensor| tensor.quantized().is_none())?;
            let (bits, outputs) = (self.stored(&target.name)?, tensor.shape.first().copied().unwrap_or(0));
            Some((tensor.bytes().len() as u64).saturating_sub((tensor.len() * bits as usize / 8 + 4 * outputs) as u64))
        };
        let saved: u64 = targets(&model.architecture).iter().filter_map(saved).sum();
        model.weights.size_in_bytes() as u64 - saved
    }

    /// Bytes that the model as it came would take in 32-bit floats.
    pub fn f32_bytes(&self) -> u64 {
        let weights = &self.model.weights;
        weights.names().filter_map(|name| weights.tensor(name).ok()).map(|tensor| 4 * tensor.len() as u64).sum()
    }

    /// What was seen of what linear maps read.
    pub(crate) fn statistics(&self) -> Option<&Statistics> {
        self.statistics.as_ref()
    }

    /// Whether any weights came as integers.
    pub fn came_rounded(&self) -> bool {
        targets(&self.model.architecture).iter().any(|target| self.stored(&target.name).is_some())
    }

    /// Bits of a tensor that came as integers.
    fn stored(&self, name: &str) -> Option<u32> {
        self.model.weights.tensor(name).ok()?.quantized().map(|quantized| quantized.bits())
    }

    /// The units of a site that are left, as an edit calls them, and the numbers of the map behind them.
    fn left(&self, number: usize, site: &Site, left: &Left) -> Result<(Vec<usize>, NewNumbers), Error> {
        match left {
            Left::Only(units) => Ok((units.clone(), NewNumbers::default())),
            // As many as they are: what they cost does not depend on which.
            Left::Count(count) => Ok((site.units[..*count].to_vec(), NewNumbers::default())),
            Left::Dimmed(units, by) => {
                let mut weight = self.weight(site)?;
                let inputs = site.units.len() * site.unit_width;
                let dimmed = |place: usize| units.contains(&site.units[place / site.unit_width]);
                for row in weight.chunks_exact_mut(inputs) {
                    row.iter_mut().enumerate().filter(|(i, _)| dimmed(*i)).for_each(|(_, w)| *w *= by);
                }
                Ok((site.units.clone(), NewNumbers { weight: Some(weight), bias: None }))
            }
            Left::Best(count) => {
                let rung = self.ladders[number]
                    .iter()
                    .find(|rung| rung.kept.len() == *count)
                    .ok_or_else(|| Error::new(format!("{}: {count} units were not prepared for", site.name())))?;
                let kept = rung.kept.iter().map(|place| site.units[*place]).collect();
                let bias = self.bias(site)?;
                let bias = bias.map(|bias| bias.iter().zip(&rung.bias).map(|(b, c)| b + c).collect());
                Ok((kept, NewNumbers { weight: Some(rung.weight.clone()), bias }))
            }
        }
    }

    fn weight(&self, site: &Site) -> Result<Vec<f32>, Error> {
        self.model.weights.matrix(self.map(site))
    }

    fn bias(&self, site: &Site) -> Result<Option<Vec<f32>>, Error> {
        let bias = self.map(site).stored_bias();
        bias.map(|bias| self.model.weights.bias(bias, site.outputs)).transpose()
    }

    /// The map behind a site's units.
    fn map(&self, site: &Site) -> &Linear {
        let layer = &self.model.architecture.layers[site.layers[0]];
        match site.kind {
            Kind::Attention => &layer.attention.output,
            Kind::Ffn => &layer.ffns[site.block].down,
        }
    }
}

/// Whether a model's plan has values with budgets that were calibrated.
fn needs_calibration(model: &Model) -> bool {
    let mca = model.plan.attention.as_ref().and_then(|attention| attention.mca.as_ref());
    mca.is_some_and(|mca| mca.sampler.needs_calibration())
}

/// What is left of a site at each stop.
fn ladder(site: &Site, weight: &[f32], statistics: &Statistics, stops: &[usize]) -> Vec<Spared> {
    let Some(moments) = Moments::of(statistics, &site.map) else { return vec![] };
    let mut surgeon = moments.surgeon(weight, site.unit_width);
    let rung = |count: &usize| {
        surgeon.reduce(*count);
        surgeon.spared()
    };
    stops.iter().map(rung).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}
