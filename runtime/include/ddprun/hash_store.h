// SPDX-License-Identifier: MIT
// A Store inside one process: for tests, and for ranks that are threads.
#pragma once

#include <memory>

#include <ddprun/store.h>

namespace ddprun {

DDPRUN_API std::shared_ptr<Store> make_hash_store();

}  // namespace ddprun
