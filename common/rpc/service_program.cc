#include "common/rpc/service_program.h"

#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/host/lock_order_checks.h"
#include "common/http/http_flags.h"
#include "common/rpc/process.h"
#include "common/rpc/security_flags.h"
#include "common/telemetry/log.h"
#include "common/telemetry/trace.h"
#include "common/telemetry/uncaught_exceptions.h"
#include "common/text/flag_help.h"
#include "common/text/printable.h"
#include "common/version/version.h"

namespace tandem::rpc {
namespace {

// They take about 30 MB.
constexpr int64_t kMaxSpans = 200000;

// Each connection takes a descriptor; idle connections soon reach the usual soft limit of 1024.
void UseMoreFileDescriptors() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = std::max(files.rlim_cur, std::min<rlim_t>(files.rlim_max, 65536));
  setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace

void AddServiceFlags(CLI::App& app, ServiceFlags& flags) {
  text::ShowDefaults(app);
  app.add_option("--config", flags.configs, "Configuration file; repeatable, later files win");
  app.add_option("--set", flags.overrides, "Override KEY=VALUE; repeatable");
  app.add_option("--listen", flags.listen, "HOST:PORT to serve on; port 0 takes a free one");
  app.add_option("--health-listen", flags.health_listen,
                 "HOST:PORT of a plaintext port for probes, which serves grpc.health.v1 only");
  app.add_option("--ready-file", flags.ready_file,
                 "Writes the address to this file once the process serves");
  app.add_option("--metrics", flags.metrics, "HOST:PORT for Prometheus (GET /metrics)");
  app.add_option("--trace", flags.trace,
                 "Writes a trace of the process to this file at its end; open it with Perfetto");
  app.add_flag("--die-with-parent", flags.die_with_parent, "Exit when the parent process exits");
  http::AddHttpFlags(app);
  AddSecurityFlags(app, flags.security);
  app.set_version_flag("--version", absl::StrCat(app.get_name(), " ", version::BuildVersion()));
}

int RunServiceProgram(CLI::App& app, const ServiceFlags& flags, security::Role role, int argc,
                      char** argv, const std::function<int(TerminationSignal&)>& run) {
  telemetry::NameUncaughtExceptions(app.get_name());
  host::SkipLockOrderChecks();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitMisuse;
  }
  if (const absl::Status status = ApplySecurityFlags(flags.security, role); !status.ok()) {
    std::cerr << app.get_name() << ": " << text::Printable(status.message()) << "\n";
    return kExitMisuse;
  }
  const char* parent = std::getenv("TANDEM_PARENT_PID");
  if (flags.die_with_parent || parent != nullptr) {
    DieWithParent(parent == nullptr ? 0 : std::atoi(parent));
  }
  // Gloo writes to sockets without MSG_NOSIGNAL: a lost peer must be an error, not end this
  // process.
  std::signal(SIGPIPE, SIG_IGN);
  UseMoreFileDescriptors();
  TerminationSignal termination;
  if (flags.trace.empty()) return run(termination);
  std::string name = std::filesystem::path(flags.trace).filename().string();
  name = name.substr(0, name.find('.'));
  telemetry::StartTrace(
      {.path = flags.trace, .process_name = std::move(name), .max_spans = kMaxSpans});
  const int exit_code = run(termination);
  const absl::Status written = telemetry::StopTrace();
  if (!written.ok()) telemetry::LogWarning("no trace", {{"error", written.message()}});
  return exit_code;
}

}  // namespace tandem::rpc
