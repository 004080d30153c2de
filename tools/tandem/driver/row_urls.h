// RowUrls(): the http and https URLs of a data row's images, before anything of them is fetched.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_ROW_URLS_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_ROW_URLS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/dataset/row_form.h"

namespace tandem::driver {

// Those of the row's list (data.image_key) and of the image parts in its messages, in any order. A row
// that is malformed may have fewer: who reads it says what is wrong.
std::vector<std::string> RowUrls(const nlohmann::json& row, const dataset::RowForm& form,
                                 const config::v1::DataConfig& config);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_ROW_URLS_H_
