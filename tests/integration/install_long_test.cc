// cmake --install makes a folder that runs without the build tree and the wheels' cache.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "tests/support/addition_data.h"
#include "tests/support/program.h"

namespace tandem {
namespace {

using ::tandem::testing::ProgramResult;
using ::tandem::testing::ReadWhole;
using ::tandem::testing::RunProgram;
using ::tandem::testing::TempFolder;
using ::tandem::testing::TinyRun;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int kInstallSeconds = 300;  // 550 MB

ProgramResult Shell(const std::string& command, int timeout_seconds = 240) {
  return RunProgram("/bin/bash", {"-c", command}, timeout_seconds);
}

// Installed once for all cases of this process.
class Install : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TempFolder;
    const ProgramResult installed =
        Shell(std::string("cmake --install '") + TANDEM_BUILD + "' --prefix '" + prefix() + "'",
              kInstallSeconds);
    ASSERT_EQ(installed.exit_code, 0) << installed.err;
  }
  static void TearDownTestSuite() { delete folder_; }

  static std::string prefix() { return *folder_ / "prefix"; }
  static std::string Program(const std::string& name) { return prefix() + "/bin/" + name; }
  static std::set<std::string> Programs() {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(prefix() + "/bin")) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }

  // Where the loader finds each library of a file; "" if nowhere.
  static std::map<std::string, std::string> Libraries(const std::string& path) {
    std::map<std::string, std::string> found;
    std::istringstream lines(Shell("ldd '" + path + "'").out);
    const std::regex line_form(R"(\s*(\S+) => (?:(/\S+) \(.*|not found))");
    std::smatch match;
    for (std::string line; std::getline(lines, line);) {
      if (!std::regex_match(line, match, line_form)) continue;
      found[match[1]] = match[2].matched ? std::filesystem::canonical(match[2].str()).string() : "";
    }
    return found;
  }

  static TempFolder* folder_;
};

TempFolder* Install::folder_ = nullptr;

TEST_F(Install, EveryLibraryIsInstalledOrOfDebian) {
  const std::string own = std::filesystem::canonical(prefix() + "/lib/tandem").string() + "/";
  for (const std::string& name : Programs()) {
    const auto libraries = Libraries(Program(name));
    EXPECT_FALSE(libraries.empty()) << name;
    for (const auto& [library, path] : libraries) {
      // The GPU's driver belongs to the machine.
      if (library.starts_with("libcuda.so")) continue;
      const bool is_found =
          path.starts_with(own) || path.starts_with("/usr/lib/") || path.starts_with("/lib/");
      EXPECT_TRUE(is_found) << name << " loads " << library << " from '" << path << "'";
    }
  }
}

TEST_F(Install, NoRunPathLeavesThePrefix) {
  for (const std::string& name : Programs()) {
    const std::string paths =
        Shell("readelf -d '" + Program(name) + "' | grep -E 'R(UN)?PATH'").out;
    EXPECT_THAT(paths, HasSubstr("[$ORIGIN/../lib/tandem]")) << name;
  }
}

// A machine that has the packages of debian-packages.txt has all that the programs and the installed
// libraries load from Debian.
TEST_F(Install, DebianPackagesNamesWhatBelongsToDebian) {
  if (Shell("command -v dpkg-shlibdeps").exit_code != 0)
    GTEST_SKIP() << "there is no dpkg-shlibdeps";
  const std::string packages = ReadWhole(prefix() + "/share/doc/tandem/debian-packages.txt");
  EXPECT_THAT(packages, HasSubstr("libgrpc++1"));
  EXPECT_THAT(packages, HasSubstr("libprotobuf"));
  EXPECT_THAT(packages, HasSubstr("libabsl"));
  EXPECT_THAT(packages, Not(HasSubstr("libgomp")));  // LibTorch's own is installed
}

TEST_F(Install, ProgramsNameTheirVersion) {
  for (const char* name : {"tandem", "tandem-trainer", "tandem-rollout", "tandem-inspect"}) {
    const ProgramResult result = RunProgram(Program(name), {"--version"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, StartsWith(std::string(name) + " " + TANDEM_PROJECT_VERSION));
  }
}

// A whole run, which starts trainer ranks and rollouts, while the build tree and the cache are empty
// folders. Only a mount namespace can hide them.
TEST_F(Install, TrainsWithoutTheBuildTreeAndTheCache) {
  const std::string unshare = "unshare --mount --map-root-user ";
  if (Shell(unshare + "true").exit_code != 0) {
    GTEST_SKIP() << "this user may not create a mount namespace (unshare --mount --map-root-user)";
  }
  const TempFolder folder;
  std::string command = "'" + Program("tandem") + "'";
  for (const std::string& argument : TinyRun(folder, "train")) command += " '" + argument + "'";
  const std::string script = folder.Write("hide.sh", R"(for folder in "$@"; do
  [ ! -d "$folder" ] || mount -t tmpfs none "$folder" || exit 77
done
cd /
exec )" + command + "\n");

  const ProgramResult result =
      Shell(unshare + "/bin/bash '" + script +
            "' '" TANDEM_BUILD "' '" TANDEM_LIBRARIES "' '" TANDEM_TABLE_LIBRARIES "'");

  if (result.exit_code == 77) GTEST_SKIP() << "cannot mount in a namespace: " << result.err;
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(std::filesystem::exists(folder / "run/model/config.json"));
}

TEST_F(Install, BringsConfigurationsExamplesAndTheClientsSource) {
  for (const char* path :
       {"doc/tandem/LICENSE", "doc/tandem/third_party.md", "doc/tandem/CHANGELOG.md",
        "tandem/configs/gsm8k.yaml", "tandem/examples/06_driver.py",
        "tandem/clients/proto/tandem/rollout/v1/rollout_service.proto",
        "tandem/clients/tools/wheel", "tandem/clients/tools/stubs/pyproject.toml",
        "tandem/clients/tools/export_metrics/__main__.py"}) {
    EXPECT_TRUE(std::filesystem::exists(prefix() + "/share/" + path)) << path;
  }
  EXPECT_EQ(ReadWhole(prefix() + "/share/tandem/clients/tools/stubs/VERSION"),
            TANDEM_PROJECT_VERSION "\n");
}

}  // namespace
}  // namespace tandem
