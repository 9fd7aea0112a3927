import os

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.files import copy, get
from conan.tools.layout import basic_layout
from conan.tools.scm import Version

required_conan_version = ">=2.0"


class PlimsollConan(ConanFile):
    name = "plimsoll"
    description = "Load-balancing decisions for expert parallelism, on the host and on CUDA devices"
    license = "Apache-2.0"
    url = "https://github.com/conan-io/conan-center-index"
    homepage = "https://github.com/@OWNER@/plimsoll"
    topics = ("mixture-of-experts", "expert-parallelism", "load-balancing", "cuda", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    no_copy_source = True

    def layout(self):
        basic_layout(self, src_folder="src")

    def package_id(self):
        self.info.clear()

    def validate(self):
        compiler = self.settings.compiler
        minimum = {"gcc": "12", "clang": "14"}.get(str(compiler))
        if minimum and Version(compiler.version) < minimum:
            raise ConanInvalidConfiguration(f"{self.ref} needs {compiler} {minimum}, not {compiler.version}")

    def source(self):
        get(self, **self.conan_data["sources"][self.version], strip_root=True)

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        copy(self, "include/*", self.source_folder, self.package_folder)

    def package_info(self):
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        self.cpp_info.set_property("cmake_file_name", "plimsoll")
        self.cpp_info.set_property("cmake_target_name", "plimsoll::plimsoll")
        self.cpp_info.set_property("pkg_config_name", "plimsoll")
