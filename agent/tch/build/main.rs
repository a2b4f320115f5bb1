//! Compiles the C++ shim against the libtorch that torch-sys links.

#![expect(clippy::print_stdout, reason = "cargo reads the output of build scripts")]

mod libtorch;

use std::path::Path;

const SOURCES: [&str; 5] = ["tensor.cpp", "hooks.cpp", "optimizer.cpp", "device.cpp", "record.cpp"];
const HEADERS: [&str; 2] = ["guard.h", "optimizer.h"];

fn main() {
    println!("cargo:rerun-if-changed=build");
    println!("cargo:rerun-if-changed=shim");
    for name in SOURCES.iter().chain(&HEADERS) {
        let path = Path::new("shim").join(name);
        println!("cargo:rerun-if-changed={}", path.display());
    }
    let libtorch = libtorch::find().unwrap_or_else(|why| panic!("{why}"));
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .pic(true)
        // Torch's headers cause thousands of warnings. As system headers they cause none, while ours still do.
        .flags(libtorch.include_dirs.iter().map(|dir| format!("-isystem{}", dir.display())))
        .define("_GLIBCXX_USE_CXX11_ABI", libtorch.cxx11_abi.as_str())
        // Torch's libraries are built with it; without it, some of torch's types have more members.
        .define("NDEBUG", None)
        // The shim's own code is never hot, but unoptimised torch headers link slowly.
        .opt_level(2)
        .debug(false)
        .files(SOURCES.iter().map(|name| Path::new("shim").join(name)))
        .compile("trainmon_tch_shim");
    for library in ["torch_cpu", "c10"] {
        println!("cargo:rustc-link-lib={library}");
    }
    // This package's own tests and examples find libtorch where it was linked; other binaries need LD_LIBRARY_PATH.
    if let Some(dir) = std::env::var_os("DEP_TCH_LIBTORCH_LIB") {
        let dir = dir.to_string_lossy();
        println!("cargo:rustc-link-search=native={dir}");
        println!("cargo:rustc-link-arg=-Wl,-rpath,{dir}");
    }
}
