# SPDX-License-Identifier: Apache-2.0
# Builds tests/consumer/find_package against the package and runs it.
import os

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import load


class PlimsollTestConan(ConanFile):
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeDeps", "PkgConfigDeps"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self, build_folder="../../../../build/conan")

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.user_presets_path = False  # it would be among the sources
        toolchain.blocks.remove("cppstd")  # that of the profile, gnu17 by default
        toolchain.variables["CMAKE_CXX_STANDARD"] = 20
        toolchain.variables["PLIMSOLL_WANTED"] = str(self.dependencies["plimsoll"].ref.version)
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure(build_script_folder="../../../consumer/find_package")
        cmake.build()

    def test(self):
        load(self, os.path.join(self.generators_folder, "plimsoll.pc"))  # must exist under this name
        if can_run(self):
            self.run(os.path.join(self.cpp.build.bindir, "consumer"), env="conanrun")
