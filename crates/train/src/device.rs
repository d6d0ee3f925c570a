//! Where to compute, by name.

use burn::tensor::Device;
use sparing_model::Error;

/// The device of this name: `cpu`, and where the program was built with it `cuda` or `wgpu`.
pub fn device(name: &str) -> Result<Device, Error> {
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    keep_kernels();
    match name {
        "cpu" => Ok(Device::flex()),
        #[cfg(feature = "cuda")]
        "cuda" => Ok(Device::cuda(burn::tensor::DeviceIndex::Default)),
        #[cfg(feature = "wgpu")]
        "wgpu" => Ok(Device::wgpu(burn::tensor::DeviceKind::DefaultDevice)),
        #[allow(unreachable_patterns, reason = "those that were built in have been taken above")]
        "cuda" | "wgpu" => Err(Error::new(format!(
            "this program was built without {name}; build it with `cargo build --release --features train,{name}`"
        ))),
        other => Err(Error::new(format!("no device is called {other:?}; there are cpu, cuda and wgpu"))),
    }
}

/// Why something did not come back from a device, in one line: what a device says of itself may be pages.
pub(crate) fn unread(what: &str, why: impl std::fmt::Debug) -> Error {
    const SHOWN: usize = 200;
    let why = format!("{why:?}");
    if why.contains("out of device memory") || why.contains("OutOfMemory") {
        let what_to_do = "use a smaller batch or shorter texts, or end other programs that use it";
        return Error::new(format!("{what} cannot be read: the device's memory is full; {what_to_do}"));
    }
    let line: String = why.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(SHOWN).collect();
    Error::new(format!("{what} cannot be read from the device: {line}"))
}

/// Bytes that this program has reserved on a device so far, if the device says.
pub fn device_memory(name: &str) -> Option<u64> {
    device(name).ok()?.memory_pool_usage().map(|usage| usage.bytes_reserved)
}

/// Keeps compiled kernels in the user's cache directory, so that only the first run on a machine waits for them. A
/// `cubecl.toml` of the user's decides where, and whether at all, if it says anything about that.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
fn keep_kernels() {
    use crate::kernels::{Held, build, hold};
    use cubecl::config::cache::CacheConfig;
    use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};
    use std::sync::OnceLock;
    static HELD: OnceLock<Option<Held>> = OnceLock::new();
    HELD.get_or_init(|| {
        let mut config = CubeClRuntimeConfig::from_current_dir().override_from_env();
        if matches!(config.environment.path, CacheConfig::Target) {
            config.environment.path = CacheConfig::Global;
        }
        let chosen = config.compilation.cache || config.environment.name != cubecl::environment::DEFAULT;
        let held = build().filter(|_| !chosen).and_then(|build| hold(&config.environment.path.root(), &build));
        if let Some(held) = &held {
            config.environment.name.clone_from(&held.name);
            config.compilation.cache = true;
        }
        // Whoever asked for a device before has decided already.
        CubeClRuntimeConfig::try_set(config);
        held
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_device_says_fits_a_line() {
        let full = unread("scores", "Several failures:\n  out of device memory allocating 92274688 bytes").to_string();
        assert!(full.contains("memory is full") && full.contains("smaller batch"), "{full}");
        let long = unread("scores", "pages\n ".repeat(500)).to_string();
        assert!(long.len() < 300 && !long.contains('\n'), "{long}");
    }
}
