// A table whose cells are text, links, pills or small drawings; rows keep their place in the page while values change.
export default {
  template: `
    <div class="hw-table" :aria-label="label" role="region" tabindex="0">
      <table :style="{'--columns': columns.length}">
        <caption v-if="label" class="sr">{{ label }}</caption>
        <thead><tr>
          <th v-for="c in columns" :key="c.name" :class="{right: c.align === 'right'}" :style="c.width ? {width: c.width} : {}" scope="col"
              :aria-sort="sort === c.name ? (down ? 'descending' : 'ascending') : null">
            <button v-if="c.sortable" @click="$emit('sort', c.name)">{{ c.label }}{{ sort === c.name ? (down ? ' ↓' : ' ↑') : '' }}</button>
            <template v-else>{{ c.label }}</template>
          </th>
        </tr></thead>
        <tbody>
          <tr v-for="(r, i) in rows" :key="r.key ?? i" :class="{clickable, picked: r.picked}" @click="clickable && $emit('row', r.key ?? i)"
              :tabindex="clickable ? 0 : null" @keydown.enter="clickable && $emit('row', r.key ?? i)">
            <td v-for="(c, j) in columns" :key="c.name" :class="[{right: c.align === 'right', mono: c.mono, clip: c.clip}, r.cells[j]?.tone ? 'tone-' + r.cells[j].tone : '']" :title="c.clip ? (r.cells[j]?.text ?? r.cells[j]) : r.cells[j]?.title">
              <template v-if="r.cells[j] !== null && typeof r.cells[j] === 'object'">
                <a v-if="r.cells[j].href" :href="r.cells[j].href" @click.stop>{{ r.cells[j].text }}</a>
                <span v-else-if="r.cells[j].pill !== undefined" :class="['pill', r.cells[j].pill]">{{ r.cells[j].text }}</span>
                <button v-else-if="r.cells[j].action" class="btn-link" style="all:unset;cursor:pointer;color:var(--accent);font-weight:500" @click.stop="$emit('act', {action: r.cells[j].action, key: r.key})">{{ r.cells[j].text }}</button>
                <span v-else-if="r.cells[j].html" v-html="r.cells[j].html"></span>
                <template v-else>{{ r.cells[j].text }}</template>
                <span v-if="r.cells[j].under" class="under">{{ r.cells[j].under }}</span>
              </template>
              <template v-else>{{ r.cells[j] }}</template>
            </td>
          </tr>
          <tr v-if="!rows.length"><td class="none" :colspan="columns.length">{{ none }}</td></tr>
        </tbody>
      </table>
    </div>`,
  props: { columns: Array, rows: Array, label: String, none: String, sort: String, down: Boolean, clickable: Boolean },
};
