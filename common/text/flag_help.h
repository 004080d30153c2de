// ShowDefaults: the --help of a program states every flag's default, read from the variable that the
// flag sets.
//
//   CLI::App app("...", "tandem-rollout");
//   text::ShowDefaults(app);
//   app.add_option("--port", port, "Port to listen on");  // --port INT=8700
#ifndef TANDEM_COMMON_TEXT_FLAG_HELP_H_
#define TANDEM_COMMON_TEXT_FLAG_HELP_H_

#include <CLI/CLI.hpp>

namespace tandem::text {

// Call before flags and subcommands are added, which inherit it. Flags that are empty unless they
// are given (text, lists) show nothing.
void ShowDefaults(CLI::App& app);

}  // namespace tandem::text

#endif  // TANDEM_COMMON_TEXT_FLAG_HELP_H_
