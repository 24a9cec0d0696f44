// A table whose cells are text, links, pills or small drawings; rows keep their place in the page while values change.
// On a phone each row is a few lines, with the names of columns before the values. The roles stay what they are in a table.
export default {
  template: `
    <div class="hw-table" :aria-label="label" role="region" tabindex="0">
      <table role="table" :style="{'--columns': columns.length}">
        <caption v-if="label" class="sr">{{ label }}</caption>
        <thead role="rowgroup"><tr role="row">
          <th v-for="c in columns" role="columnheader" :key="c.name" :class="{right: c.align === 'right'}" :style="c.width ? {width: c.width} : {}" scope="col"
              :aria-sort="sort === c.name ? (down ? 'descending' : 'ascending') : null">
            <button v-if="c.sortable" @click="$emit('sort', c.name)">{{ c.label }}{{ sort === c.name ? (down ? ' ↓' : ' ↑') : '' }}</button>
            <template v-else>{{ c.label }}</template>
          </th>
        </tr></thead>
        <tbody role="rowgroup">
          <tr v-for="(r, i) in rows" role="row" :key="r.key ?? i" :class="{clickable, picked: r.picked}" @click="clickable && $emit('row', r.key ?? i)"
              :tabindex="clickable ? 0 : null" @keydown.enter="clickable && $emit('row', r.key ?? i)">
            <td v-for="(c, j) in columns" role="cell" :data-label="j && needsName(r.cells[j]) ? c.label.trim() || null : null" :key="c.name" :class="[{right: c.align === 'right', mono: c.mono, clip: c.clip, long: isLong(r.cells[j]), blank: r.cells[j] === '' || r.cells[j] === null}, r.cells[j]?.tone ? 'tone-' + r.cells[j].tone : '']" :title="c.clip ? (r.cells[j]?.text ?? r.cells[j]) : r.cells[j]?.title">
              <template v-if="r.cells[j] !== null && typeof r.cells[j] === 'object'">
                <a v-if="r.cells[j].href" :href="r.cells[j].href" @click.stop>{{ r.cells[j].text }}</a>
                <span v-else-if="r.cells[j].pill !== undefined" :class="['pill', r.cells[j].pill]">{{ r.cells[j].text }}</span>
                <button v-else-if="r.cells[j].action" class="btn-link" type="button" @click.stop="$emit('act', {action: r.cells[j].action, key: r.key})">{{ r.cells[j].text }}</button>
                <span v-else-if="r.cells[j].html" v-html="r.cells[j].html"></span>
                <template v-else>{{ r.cells[j].text }}</template>
                <span v-if="r.cells[j].under" class="under">{{ r.cells[j].under }}</span>
              </template>
              <template v-else>{{ r.cells[j] }}</template>
            </td>
          </tr>
          <tr v-if="!rows.length" role="row"><td class="none" role="cell" :colspan="columns.length">{{ none }}</td></tr>
        </tbody>
      </table>
    </div>`,
  props: { columns: Array, rows: Array, label: String, none: String, sort: String, down: Boolean, clickable: Boolean },
  methods: {
    // A pill, or a name with a line under it, says by itself what it is.
    needsName(cell) { return !(cell !== null && typeof cell === "object" && (cell.pill !== undefined || cell.action || (cell.href && cell.under))); },
    // Only a word that is longer than a column may be broken; others stay whole, and the table scrolls within itself.
    isLong(cell) { const text = cell !== null && typeof cell === "object" ? `${cell.text ?? ""} ${cell.under ?? ""}` : String(cell ?? ""); return /\S{25}/.test(text); },
  },
};
