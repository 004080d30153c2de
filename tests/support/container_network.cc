#include "tests/support/container_network.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/status/status_macros.h"
#include "nlohmann/json.hpp"
#include "tests/support/program.h"

namespace tandem::testing {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(30);

std::string Address(int index) { return absl::StrCat("10.77.0.", 10 + index); }

absl::Status Shell(const std::string& command) {
  if (std::system(command.c_str()) == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("failed: ", command));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ContainerNetwork>> ContainerNetwork::Create(
    const std::vector<std::string>& names) {
  if (geteuid() != 0) return absl::PermissionDeniedError("network namespaces need root");
  if (unshare(CLONE_NEWNET) != 0) {
    return absl::PermissionDeniedError(absl::StrCat("unshare: ", std::strerror(errno)));
  }
  std::unique_ptr<ContainerNetwork> out(new ContainerNetwork);
  out->names_ = names;
  const absl::Status bridge = Shell(
      "ip link set lo up && ip link add br0 type bridge && ip address add 10.77.0.1/24 dev br0 && "
      "ip link set br0 up");
  if (!bridge.ok()) return absl::PermissionDeniedError(bridge.message());
  std::string hosts = "127.0.0.1 localhost\n";
  for (size_t i = 0; i < names.size(); ++i) {
    absl::StrAppend(&hosts, Address(static_cast<int>(i)), " ", names[i], "\n");
  }
  out->folder_.Write("hosts", hosts);
  return out;
}

int ContainerNetwork::IndexOf(const std::string& name) const {
  return static_cast<int>(std::find(names_.begin(), names_.end(), name) - names_.begin());
}

absl::StatusOr<std::unique_ptr<rpc::ChildProcess>> ContainerNetwork::Start(
    const ContainerOptions& options) {
  const int index = IndexOf(options.name);
  const std::string root = folder_ / options.name;
  std::filesystem::create_directory(root);
  // Of an earlier life: its end of the link goes when the kernel has taken its namespace down.
  std::filesystem::remove(root + ".unshared");
  Shell(absl::StrCat("ip link del v", index, " 2>/dev/null")).IgnoreError();
  const std::string source = std::getenv("TANDEM_SOURCE");
  rpc::ChildProcessOptions process;
  process.name = options.name;
  process.log_path = options.log_path;
  process.environment = options.environment;
  process.environment["PATH"] =
      absl::StrCat(std::getenv("TANDEM_BIN"), ":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
  process.argv = {"unshare",
                  "--net",
                  "--mount",
                  "--uts",
                  "--ipc",
                  source + "/tests/support/container.sh",
                  options.name,
                  Address(index),
                  root,
                  folder_ / "hosts",
                  absl::StrJoin(options.volumes, " ", [](std::string* out, const auto& volume) {
                    absl::StrAppend(out, volume.second, ":", volume.first);
                  })};
  process.argv.insert(process.argv.end(), options.command.begin(), options.command.end());
  ASSIGN_OR_RETURN(std::unique_ptr<rpc::ChildProcess> child,
                   rpc::ChildProcess::Start(std::move(process)));
  const absl::Time deadline = absl::Now() + kTimeout;
  while (!std::filesystem::exists(root + ".unshared")) {
    if (!child->running() || absl::Now() > deadline) {
      return absl::UnavailableError(absl::StrCat("container ", options.name, " ",
                                                 child->ExitDescription(),
                                                 "; its log: ", ReadWhole(options.log_path)));
    }
    absl::SleepFor(absl::Milliseconds(5));
  }
  RETURN_IF_ERROR(Shell(absl::StrCat("ip link add v", index, " type veth peer name eth0 netns ",
                                     child->pid(), " && ip link set v", index, " master br0 up")));
  return child;
}

bool ContainerNetwork::Run(const rpc::ChildProcess& container,
                           const std::vector<std::string>& command, absl::Duration timeout) {
  std::vector<std::string> argv = {"nsenter", "--target", std::to_string(container.pid()),
                                   "--net",   "--mount",  "--uts",
                                   "--ipc",   "--root",   "--wd"};
  argv.insert(argv.end(), command.begin(), command.end());
  auto child = rpc::ChildProcess::Start(
      {.argv = argv,
       .environment = {{"PATH", absl::StrCat(std::getenv("TANDEM_BIN"), ":", std::getenv("PATH"))}},
       .log_path = folder_ / "commands.log"});
  return child.ok() && (*child)->Wait(timeout) && (*child)->ExitStatus().ok();
}

absl::StatusOr<int64_t> ContainerNetwork::ReceivedBytes(const std::string& name) {
  const std::string path = folder_ / "link.json";
  RETURN_IF_ERROR(
      Shell(absl::StrCat("ip -statistics -json link show v", IndexOf(name), " > ", path)));
  // What the bridge's end sends is what the container receives.
  return nlohmann::json::parse(ReadWhole(path))[0]["stats64"]["tx"]["bytes"].get<int64_t>();
}

}  // namespace tandem::testing
