// The checker's view of the kernel library's own memory: `__device__` and `__constant__` objects, tables, literals.
#include "checker.h"
#include "worker.h"

namespace gf_emulator {

namespace {

const OwnedBytes every_byte;

const char* memory_of(ModuleMemory::Kind kind) {
    return kind == ModuleMemory::Kind::device ? "device:" : "constant:";
}

}  // namespace

bool Checker::is_static(const void* address) const {
    return static_.contains(address, 1) || block_.worker().launch().module->contains(address);
}

// Each line of a matrix, so that it may have gaps between its lines.
bool Checker::is_readable(const Matrix& matrix) {
    const char* line = static_cast<const char*>(matrix.first);
    for (unsigned number = 0; number < matrix.lines; number++, line += matrix.pitch_bytes)
        if (!is_readable(line, matrix.line_bytes)) return false;
    return true;
}

void Checker::module_access(const char* address, unsigned bytes, const Running& running) {
    const ModuleMemory& module = *block_.worker().launch().module;
    const ModuleMemory::Object* object = module.object_at(address);
    if (!object || !object->holds(address, bytes)) {
        if (!object && !writes(running.action) && module.is_literal(address, bytes)) return;
        module_fault("out_of_bounds", address, bytes, running, object,
                     module.describe(object ? object->begin + object->bytes : address));
    }
    if (object->kind == ModuleMemory::Kind::device)
        return watched_access(block_.worker().launch().global_shadow->number_of(*object), "device:" + object->name,
                              std::size_t(address - object->begin), bytes, running, object);
    if (writes(running.action))
        module_fault("device_fault", address, bytes, running, object,
                     format("in '%s', which is constant memory", object->name.c_str()));
    readable_.push_back({{std::uintptr_t(object->begin), object->bytes, 0}, &every_byte});
}

void Checker::module_fault(const char* kind, const char* address, unsigned bytes, const Running& running,
                           const ModuleMemory::Object* object, const std::string& place) {
    Finding finding{kind, "module", 0, bytes, party(running), {}, place};
    if (object) {
        finding.memory = memory_of(object->kind) + object->name;
        finding.offset = address - object->begin;
    }
    findings().add(finding);
    block_.worker().fail(kind, running.site,
                         format("%u bytes are %s %s", bytes, writes(running.action) ? "written" : "read", place.c_str()));
}

}  // namespace gf_emulator
