// ServedFolder: a model folder that a run serves besides its policy: a teacher's or a reward model's.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_SERVED_FOLDER_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_SERVED_FOLDER_H_

#include <functional>
#include <string>

namespace tandem::driver {

// A rollout of its own serves the folder; no trainer updates it.
struct ServedFolder {
  std::string name;  // of the process: "teacher-0", "reward-model-1"
  std::string key;   // of the configuration, with path and endpoint: "teacher", "reward.model"
  std::string path;
};

// Returns the present address of the served folder of that name; empty while its rollout is down. May
// restart it.
using AddressOfServed = std::function<std::string(const std::string& name)>;

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_SERVED_FOLDER_H_
