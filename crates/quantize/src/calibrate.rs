//! What linear maps read, summed up over calibration data.

use crate::Products;
use sparing_engine::Engine;
use sparing_model::{Batch, Error, Executor, Model, Outputs};
use sparing_tasks::{Dataset, Options, Progress, visit};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// What one linear map reads.
#[derive(Clone)]
pub struct Sums {
    /// Rows seen.
    pub rows: u64,
    /// Sum per input.
    pub sum: Vec<f64>,
    /// Sum of squares per input.
    pub squares: Vec<f64>,
    /// Least number of all.
    pub least: f32,
    /// Largest number of all.
    pub most: f32,
    /// How inputs go together, if that was asked for.
    pub products: Option<Products>,
    /// The map that reads the same rows, and has the products.
    pub leader: String,
}

impl Sums {
    fn new(inputs: usize, leader: &str, products: bool) -> Sums {
        let (sum, squares) = (vec![0.0; inputs], vec![0.0; inputs]);
        let products = products.then(Products::default);
        Sums { rows: 0, sum, squares, least: f32::MAX, most: f32::MIN, products, leader: leader.to_string() }
    }

    fn add(&mut self, rows: &[f32]) {
        for row in rows.chunks_exact(self.sum.len()) {
            self.rows += 1;
            for ((x, sum), square) in row.iter().zip(&mut self.sum).zip(&mut self.squares) {
                let x = f64::from(*x);
                *sum += x;
                *square += x * x;
            }
        }
        if let Some(products) = &mut self.products {
            products.add(rows, self.sum.len());
        }
        (self.least, self.most) =
            rows.iter().fold((self.least, self.most), |(least, most), x| (least.min(*x), most.max(*x)));
    }

    /// Of some of the inputs: what a map reads that lost the others.
    pub fn of_inputs(&self, kept: &[usize]) -> Sums {
        let part = |all: &[f64]| kept.iter().map(|i| all[*i]).collect();
        Sums {
            sum: part(&self.sum),
            squares: part(&self.squares),
            products: self.products.as_ref().map(|products| products.of_inputs(kept)),
            ..self.clone()
        }
    }

    /// Mean per input.
    pub fn mean(&self) -> Vec<f32> {
        self.sum.iter().map(|s| (s / self.rows as f64) as f32).collect()
    }

    /// Mean square per input.
    pub fn mean_square(&self) -> Vec<f32> {
        self.squares.iter().map(|s| (s / self.rows as f64) as f32).collect()
    }
}

/// What all linear maps read, by the name of their weight.
pub type Statistics = BTreeMap<String, Sums>;

/// Runs the model over a dataset and sums up what its linear maps read; labels are not needed. `engine` is the exact
/// model's. `products`: also how inputs go together, a matrix per map. `None` if `progress` returned false.
pub fn calibrate(
    engine: &Engine,
    model: &Model,
    dataset: &Dataset,
    options: &Options,
    products: bool,
    progress: &mut dyn FnMut(&Progress) -> bool,
) -> Result<Option<Statistics>, Error> {
    let watcher = Watcher { engine, products, found: Mutex::new(Statistics::new()) };
    let complete = visit(&watcher, model.tokenizer()?, &model.architecture, dataset, options, progress)?;
    let found = watcher.found.into_inner().unwrap_or_else(|e| e.into_inner());
    Ok(complete.then_some(found))
}

/// The engine, watched.
struct Watcher<'a> {
    engine: &'a Engine,
    products: bool,
    found: Mutex<Statistics>,
}

impl Executor for Watcher<'_> {
    fn run(&self, batch: &Batch) -> Result<Outputs, Error> {
        let mut found = self.found.lock().unwrap_or_else(|e| e.into_inner());
        self.engine.observe(batch, &mut |seen| {
            if !found.contains_key(seen.weight) {
                let products = self.products && seen.leader == seen.weight;
                found.insert(seen.weight.to_string(), Sums::new(seen.inputs, seen.leader, products));
            }
            if let Some(sums) = found.get_mut(seen.weight) {
                sums.add(seen.rows);
            }
        })
    }
}
