#include "common/http/http_flags.h"

#include <cstdlib>
#include <string>

#include "common/http/host_policy.h"

namespace tandem::http {

void AddHttpFlags(CLI::App& app) {
  app.add_option_function<std::string>(
         "--http-allow-host",
         [](const std::string& names) { setenv(kAllowHostVariable, names.c_str(), 1); },
         std::string("Comma-separated host names that the HTTP ports accept besides IP addresses "
                     "and names of the local network; .example.org includes its subdomains. Or ") +
             kAllowHostVariable)
      ->type_name("NAME,...");
}

}  // namespace tandem::http
