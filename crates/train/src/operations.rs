//! The time of single operations at a network's sizes: which of them an update should avoid on a device.

use crate::clock::wait;
use crate::gpu::Looked;
use crate::{StepShape, gpu};
use burn::tensor::module::{embedding, layer_norm};
use burn::tensor::{DType, Device, Distribution, Int, Tensor, TensorData, activation};
use serde::Serialize;
use sparing_model::{Architecture, Error};
use std::time::Instant;

/// Runs before the timed ones: the first compiles.
const WARM: usize = 2;
/// Runs that are waited for together.
const RUNS: usize = 10;

/// How long one operation takes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OperationTime {
    /// What is done.
    pub name: String,
    /// At which sizes.
    pub sizes: String,
    /// `bf16` or `f32`.
    pub precision: &'static str,
    /// Of one run, the mean of ten in a row.
    pub milliseconds: f64,
    /// 10¹² multiplications and additions per second; of products only.
    pub tflops: Option<f64>,
}

/// Times the operations of an update of this size, and hands each to `found` as soon as it is known. Where there is a way of
/// Burn's and one of ours, both are timed.
pub fn operation_times<E: From<Error>>(
    architecture: &Architecture,
    shape: StepShape,
    device: Device,
    found: impl FnMut(OperationTime) -> Result<(), E>,
) -> Result<(), E> {
    let Some(layer) = architecture.layers.first() else { return Err(Error::new("a network without layers").into()) };
    let (heads, head_width) = (layer.attention.heads, layer.attention.head_width);
    let (rows, hidden) = (shape.batch * shape.length, architecture.hidden);
    let inner = layer.ffns.first().map_or(hidden, |ffn| ffn.up.outputs);
    let mut bench = Bench { device, precision: DType::F32, found };
    bench.sums(rows, hidden)?;
    bench.looked_up(architecture.embeddings.vocabulary, rows, hidden)?;
    bench.element_wise([shape.batch * heads * shape.length, shape.length], [rows, hidden], [rows, inner])?;
    for precision in [DType::BF16, DType::F32] {
        bench.precision = precision;
        for [inputs, outputs] in [[hidden, hidden], [hidden, inner], [inner, hidden]] {
            bench.products(rows, inputs, outputs)?;
        }
        bench.attention([shape.batch, heads, shape.length, head_width])?;
    }
    Ok(())
}

struct Bench<F> {
    device: Device,
    precision: DType,
    found: F,
}

impl<E: From<Error>, F: FnMut(OperationTime) -> Result<(), E>> Bench<F> {
    fn random<const D: usize>(&self, shape: [usize; D]) -> Tensor<D> {
        Tensor::<D>::random(shape, Distribution::Uniform(-1.0, 1.0), &self.device).cast(self.precision)
    }

    /// The same as a leaf of a graph of gradients.
    fn leaf(&self, shape: [usize; 2]) -> Tensor<2> {
        self.random(shape).autodiff().require_grad()
    }

    fn time(&mut self, name: &str, sizes: &[usize], flops: Option<usize>, mut run: impl FnMut()) -> Result<(), E> {
        (0..WARM).for_each(|_| run());
        wait(&self.device)?;
        let start = Instant::now();
        (0..RUNS).for_each(|_| run());
        wait(&self.device)?;
        let seconds = start.elapsed().as_secs_f64() / RUNS as f64;
        let sizes: Vec<String> = sizes.iter().map(usize::to_string).collect();
        (self.found)(OperationTime {
            name: name.to_string(),
            sizes: sizes.join(" x "),
            precision: if self.precision == DType::BF16 { "bf16" } else { "f32" },
            milliseconds: seconds * 1e3,
            tflops: flops.map(|flops| flops as f64 / seconds / 1e12),
        })
    }

    /// Forward and backward together.
    fn graph(&mut self, name: &str, shapes: &[[usize; 2]], run: impl Fn(&[Tensor<2>]) -> Tensor<2>) -> Result<(), E> {
        let inputs: Vec<Tensor<2>> = shapes.iter().map(|shape| self.leaf(*shape)).collect();
        self.time(name, &shapes[0], None, || drop(run(&inputs).sum().backward()))
    }

    fn sums(&mut self, rows: usize, width: usize) -> Result<(), E> {
        for precision in [DType::BF16, DType::F32] {
            self.precision = precision;
            let x = self.random([rows, width]);
            self.time("sum of rows, Burn's", &[rows, width], None, || drop(x.clone().sum_dim(0)))?;
            self.time("sum of rows, ours", &[rows, width], None, || drop(gpu::column_sums(x.clone())))?;
        }
        let x = self.random([rows, width]);
        self.time("mean of each row", &[rows, width], None, || drop(x.clone().mean_dim(1)))?;
        self.time("sum of all", &[rows, width], None, || drop(x.clone().sum()))
    }

    fn looked_up(&mut self, vocabulary: usize, rows: usize, width: usize) -> Result<(), E> {
        let ids: Vec<i32> = (0..rows).map(|i| ((i * 7919 + 13) % vocabulary.max(1)) as i32).collect();
        let data = TensorData::new(ids.clone(), [1, rows]);
        let on_device = Tensor::<2, Int>::from_data(data, &self.device);
        self.graph("embedding and back, Burn's", &[[vocabulary, width]], |x| {
            embedding(x[0].clone(), on_device.clone()).reshape([rows, width])
        })?;
        self.graph("embedding and back, ours", &[[vocabulary, width]], |x| {
            gpu::lookup(x[0].clone(), &Looked::new(&x[0], ids.clone()))
        })
    }

    fn element_wise(&mut self, scores: [usize; 2], hidden: [usize; 2], inner: [usize; 2]) -> Result<(), E> {
        let row = [1, hidden[1]];
        self.graph("norm and back, Burn's", &[hidden, row, row], |x| {
            let [weight, bias] = [&x[1], &x[2]].map(|row| row.clone().reshape([hidden[1]]));
            layer_norm(x[0].clone(), weight, Some(bias), 1e-12)
        })?;
        self.graph("norm and back, ours", &[hidden, row, row], |x| {
            gpu::norm(x[0].clone(), x[1].clone(), x[2].clone(), 1e-12)
        })?;
        self.graph("softmax and back, Burn's", &[scores], |x| activation::softmax(x[0].clone(), 1))?;
        self.graph("softmax and back, ours", &[scores], |x| gpu::softmax(x[0].clone()))?;
        self.graph("GELU and back, Burn's", &[inner], |x| activation::gelu(x[0].clone()))?;
        self.graph("GELU and back, ours", &[inner], |x| gpu::gelu(x[0].clone()))?;
        let x = self.random(inner);
        let kept = || Tensor::<2>::random(inner, Distribution::Bernoulli(0.9), (&x.device(), DType::F32));
        self.time("draws of a dropout", &inner, None, || drop(kept()))?;
        self.time("product of elements", &inner, None, || drop(x.clone() * x.clone()))?;
        self.time("product with a number", &inner, None, || drop(x.clone().mul_scalar(1.1)))?;
        self.time("f32 to bf16", &inner, None, || drop(x.clone().cast(DType::BF16)))?;
        let narrow = x.clone().cast(DType::BF16);
        self.time("bf16 to f32", &inner, None, || drop(narrow.clone().cast(DType::F32)))?;
        let small = self.random([8, 8]);
        self.time("the smallest launch", &[8, 8], None, || drop(small.clone().mul_scalar(1.1)))
    }

    /// A linear map: forward, and both gradients in the layouts they have.
    fn products(&mut self, rows: usize, inputs: usize, outputs: usize) -> Result<(), E> {
        let (sizes, flops) = ([rows, inputs, outputs], Some(2 * rows * inputs * outputs));
        let (x, w, g) = (self.random([rows, inputs]), self.random([outputs, inputs]), self.random([rows, outputs]));
        let precision = self.precision;
        let ours = |a: Tensor<2>, b: Tensor<2>| drop(gpu::times(a, b, precision));
        self.time("x Wᵀ, Burn's", &sizes, flops, || drop(x.clone().matmul(w.clone().transpose())))?;
        self.time("x Wᵀ, ours", &sizes, flops, || ours(x.clone(), w.clone().transpose()))?;
        self.time("g W, Burn's", &sizes, flops, || drop(g.clone().matmul(w.clone())))?;
        self.time("g W, ours", &sizes, flops, || ours(g.clone(), w.clone()))?;
        self.time("xᵀ g, Burn's", &sizes, flops, || drop(x.clone().transpose().matmul(g.clone())))?;
        self.time("gᵀ x, ours", &sizes, flops, || drop(gpu::transposed_product(g.clone(), x.clone())))?;
        let turned = |m: &Tensor<2>| {
            let [rows, columns] = m.dims();
            m.clone().transpose().reshape([rows * columns]).reshape([columns, rows])
        };
        self.time("copy of gᵀ", &[rows, outputs], None, || drop(turned(&g)))?;
        let copy = turned(&g);
        self.time("copied gᵀ x", &sizes, flops, || drop(copy.clone().matmul(x.clone())))
    }

    /// Products per head of contiguous and of turned queries and keys.
    fn attention(&mut self, [batch, heads, length, width]: [usize; 4]) -> Result<(), E> {
        let (sizes, flops) = ([batch, heads, length, width], Some(2 * batch * heads * length * length * width));
        let q = self.random(sizes);
        let p = self.random([batch, heads, length, length]);
        let permuted = self.random([batch, length, heads, width]).swap_dims(1, 2);
        self.time("q kᵀ", &sizes, flops, || drop(q.clone().matmul(q.clone().transpose())))?;
        self.time("q kᵀ, heads not together", &sizes, flops, || {
            drop(permuted.clone().matmul(permuted.clone().transpose()));
        })?;
        self.time("p v", &sizes, flops, || drop(p.clone().matmul(q.clone())))?;
        self.time("pᵀ g", &sizes, flops, || drop(p.clone().transpose().matmul(q.clone())))
    }
}
