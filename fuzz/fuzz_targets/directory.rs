//! The directory reader: `config.json`, a zero byte, then `model.safetensors`. It loads or it says why.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sparing_model::{LoadOptions, Model};
use std::collections::BTreeMap;

fuzz_target!(|data: &[u8]| {
    let split = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let (config, weights) = (&data[..split], data.get(split + 1..).unwrap_or_default());
    let files = BTreeMap::from([
        ("config.json".to_string(), config.to_vec()),
        ("model.safetensors".to_string(), weights.to_vec()),
    ]);
    match Model::load_from_memory(files, &LoadOptions::default()) {
        // Whatever loads must also be readable to the last number.
        Ok(model) => {
            for layer in &model.architecture.layers {
                model.weights.matrix(&layer.attention.query).unwrap();
                model.weights.matrix(&layer.ffns[0].up).unwrap();
            }
        }
        Err(error) => assert!(!error.to_string().contains('\n')),
    }
});
