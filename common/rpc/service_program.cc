#include "common/rpc/service_program.h"

#include <csignal>
#include <cstdlib>

#include "common/rpc/process.h"

namespace tandem::rpc {

void AddServiceFlags(CLI::App& app, ServiceFlags& flags) {
  app.add_option("--config", flags.configs, "Configuration file; may be given several times");
  app.add_option("--set", flags.overrides, "Override KEY=VALUE; may be given several times");
  app.add_option("--listen", flags.listen, "HOST:PORT; port 0 takes a free one");
  app.add_option("--ready-file", flags.ready_file,
                 "The address is written here once the process serves");
  app.add_flag("--die-with-parent", flags.die_with_parent,
               "End when the process that started this one ends");
  app.set_version_flag("--version", TANDEM_VERSION);
}

int RunServiceProgram(CLI::App& app, const ServiceFlags& flags, int argc, char** argv,
                      const std::function<int(TerminationSignal&)>& run) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitMisuse;
  }
  const char* parent = std::getenv("TANDEM_PARENT_PID");
  if (flags.die_with_parent || parent != nullptr) {
    DieWithParent(parent == nullptr ? 0 : std::atoi(parent));
  }
  // Gloo writes to sockets as they are: a peer that has gone is its error, not this process's end.
  std::signal(SIGPIPE, SIG_IGN);
  TerminationSignal termination;
  return run(termination);
}

}  // namespace tandem::rpc
