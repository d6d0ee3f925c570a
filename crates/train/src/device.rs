//! Where to compute, by name.

use burn::tensor::Device;
use sparing_model::Error;

/// The device of this name: `cpu`, and where the program was built with it `cuda` or `wgpu`.
pub fn device(name: &str) -> Result<Device, Error> {
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    remember_choices();
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

/// Bytes that this program has reserved on a device so far, if the device says.
pub fn device_memory(name: &str) -> Option<u64> {
    device(name).ok()?.memory_pool_usage().map(|usage| usage.bytes_reserved)
}

/// Keeps the choices among kernels in the user's cache directory, so that only the first run on a machine measures them. A
/// `cubecl.toml` of the user's decides where, if there is one.
///
/// The kernels themselves are compiled anew by every process: CubeCL 0.11 can keep them too, but two processes that share
/// that cache, or one that was built anew, can fail with "Should be cached now".
#[cfg(any(feature = "cuda", feature = "wgpu"))]
fn remember_choices() {
    use cubecl::config::cache::CacheConfig;
    use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};
    let mut config = CubeClRuntimeConfig::from_current_dir().override_from_env();
    if matches!(config.environment.path, CacheConfig::Target) {
        config.environment.path = CacheConfig::Global;
    }
    // Whoever asked for a device before has decided already.
    let _ = CubeClRuntimeConfig::try_set(config);
}
