// --allow-image-urls, of commands whose rows have images.
#ifndef TANDEM_TOOLS_TANDEM_COMMANDS_IMAGE_URL_OPTION_H_
#define TANDEM_TOOLS_TANDEM_COMMANDS_IMAGE_URL_OPTION_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <utility>

#include "common/images/fetch/image_fetcher.h"
#include "tools/tandem/commands/row_images.h"

namespace tandem::commands {

inline CLI::Option* AddImageUrlsOption(CLI::App& command, bool& allowed) {
  return command.add_flag("--allow-image-urls", allowed,
                          "Fetches images that rows name by http and https URLs, from public "
                          "addresses only");
}

// What the option allows.
inline ImageFetching FetchingIf(bool allowed, std::function<bool()> interrupted = nullptr) {
  if (!allowed) return {};
  return {std::make_shared<const images::ImageFetcher>(), std::move(interrupted)};
}

}  // namespace tandem::commands

#endif  // TANDEM_TOOLS_TANDEM_COMMANDS_IMAGE_URL_OPTION_H_
