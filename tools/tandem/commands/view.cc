// tandem view: the curves and samples of runs in a browser.
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/http/http_flags.h"
#include "common/rpc/termination_signal.h"
#include "common/status/status_macros.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/driver/local_cluster.h"
#include "tools/tandem/view/open_runs.h"
#include "tools/tandem/view/view_server.h"

namespace tandem::commands {
namespace {

struct ViewOptions {
  std::vector<std::string> run_dirs;
  std::string host = "127.0.0.1";
  int port = 8700;
};

absl::Status RunView(const ViewOptions& options) {
  rpc::TerminationSignal termination;
  absl::StatusOr<std::vector<view::ViewedRun>> runs =
      view::OpenRuns(options.run_dirs, driver::BinaryFolder() + "/tandem-inspect");
  if (!runs.ok()) return Misuse(runs.status());
  ASSIGN_OR_RETURN(
      const auto server,
      view::ViewServer::Start(absl::StrCat(options.host, ":", options.port), *std::move(runs)));
  std::printf("%s\n", server->url().c_str());
  std::fflush(stdout);
  termination.Wait();
  return absl::OkStatus();
}

}  // namespace

void AddView(CLI::App& app, Runner& runner) {
  CLI::App* command = app.add_subcommand(
      "view", "Serves a web page with the curves and samples of runs, updated live");
  auto options = std::make_shared<ViewOptions>();
  command
      ->add_option("run_dirs", options->run_dirs,
                   "Folders of runs to compare; a folder of runs stands for all of them")
      ->required();
  command->add_option("--port", options->port, "Port of the page; 0 takes a free one")
      ->check(CLI::Range(0, 65535));
  command->add_option("--host", options->host,
                      "Address to listen on; anyone who can reach it can read the runs");
  http::AddHttpFlags(*command);
  command->callback([&runner, options] { runner = [options] { return RunView(*options); }; });
}

}  // namespace tandem::commands
