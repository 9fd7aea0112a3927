# SPDX-License-Identifier: Apache-2.0
import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.files import copy, load
from conan.tools.layout import basic_layout
from conan.tools.scm import Version

required_conan_version = ">=2.3"  # test_package_folder


class PlimsollConan(ConanFile):
    name = "plimsoll"
    description = "Load-balancing decisions for expert parallelism, on the host and on CUDA devices"
    license = "Apache-2.0"
    topics = ("mixture-of-experts", "expert-parallelism", "load-balancing", "cuda", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    exports_sources = "include/*.hpp", "include/*.cuh", "LICENSE"
    no_copy_source = True
    test_package_folder = "tests/packaging/conan/test_package"

    def set_version(self):
        header = load(self, os.path.join(self.recipe_folder, "include", "plimsoll", "version.hpp"))
        self.version = ".".join(re.findall(r"#define PLIMSOLL_VERSION_\w+ +(\d+)", header))

    def layout(self):
        basic_layout(self)

    def validate(self):
        # The standard is not checked: compiler.cppstd is for all packages of a consumer, by default gnu17.
        compiler = self.settings.compiler
        minimum = {"gcc": "12", "clang": "14"}.get(str(compiler))
        if minimum and Version(compiler.version) < minimum:
            raise ConanInvalidConfiguration(f"plimsoll needs {compiler} {minimum}, not {compiler.version}")

    def package_id(self):
        self.info.clear()  # one package for all compilers

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        copy(self, "include/*", self.source_folder, self.package_folder)

    def package_info(self):
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        self.cpp_info.set_property("cmake_file_name", "plimsoll")
        self.cpp_info.set_property("cmake_target_name", "plimsoll::plimsoll")
        self.cpp_info.set_property("pkg_config_name", "plimsoll")
