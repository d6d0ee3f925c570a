//! After the first requests nothing is allocated but the outputs.

mod common;

use common::{Golden, fixture};
use sparing_engine::{Engine, Options};
use sparing_model::{Batch, Executor, Functions, Model, Precision, SoftmaxNetwork, Wanted};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

static COUNT: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn only_outputs_are_allocated_after_warm_up() {
    let names =
        ["bert-classify", "bert-token", "mpnet-classify", "longformer-classify", "mobilebert-mlm", "xlnet-token"];
    // The last with networks in softmax's place.
    for (name, network) in names.map(|name| (name, false)).into_iter().chain([("bert-token", true)]) {
        let directory = fixture(name);
        let (mut model, golden) = (Model::load(&directory).unwrap(), Golden::read(&directory));
        if network {
            let longest = golden.sequences.iter().map(|sequence| sequence.ids.len()).max().unwrap();
            let functions = Functions::all(SoftmaxNetwork { tokens: longest, shared: false, keys: None });
            let fill = &mut |_: &str, shape: &[usize]| vec![0.01; shape.iter().product()];
            model = model.with_functions(&functions, fill).unwrap();
        }
        for precision in [Precision::F32, Precision::Bf16, Precision::Int8] {
            let options = Options { threads: 2, precision: Some(precision), ..Options::default() };
            let engine = Engine::compile(&model, &options).unwrap();
            for wanted in [Wanted::Head, Wanted::Hidden] {
                let batch = Batch { sequences: golden.sequences.clone(), wanted };
                let most = 1 + batch.sequences.len();
                // Chunks go to whichever worker is free, so it may take a while until each has met each size.
                let mut settled = 0;
                for _ in 0..500 {
                    let before = COUNT.load(Ordering::Relaxed);
                    engine.run(&batch).unwrap();
                    let count = COUNT.load(Ordering::Relaxed) - before;
                    settled = if count <= most { settled + 1 } else { 0 };
                    if settled == 10 {
                        break;
                    }
                }
                assert_eq!(settled, 10, "{name} {precision:?}: more than {most} allocations in every run");
            }
        }
    }
}
